"""What secrets look like in a text: the shapes that providers document, and how they are passed.

A shape is taken up here when it is distinctive: a hexadecimal number is a commit or a digest more
often than a key, so that such keys are told by the name that they stand under.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["looks_random", "redact_tokens", "remember_secrets"]

_known: dict[str, None] = {}
"""Values that were found under a secret's name in this process: nothing else may quote them."""

_KNOWN = 256
_TELLING = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z]).{8,}|.{20,}", re.DOTALL)
"""What is no word that stands in other texts as well."""

_WORD = r"[A-Za-z0-9_\-]"
# sixteen characters that no name of words with hyphens or underscores between them has
_RANDOM = rf"(?={_WORD}{{0,200}}?(?=[A-Za-z]{{0,15}}[0-9])[A-Za-z0-9]{{16}})"

_SHAPES = (
    rf"sk-{_RANDOM}{_WORD}{{16,}}",  # OpenAI, Anthropic, OpenRouter, DeepSeek, ...
    r"hf_[A-Za-z0-9]{16,}",
    r"api_org_[A-Za-z0-9]{16,}",  # Hugging Face, of an organisation
    r"wandb_v1_[A-Za-z0-9_]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    rf"gl(?:pat|ptt|dt|rt|cbt|oas|soat|ft|imt|agent)-{_WORD}{{20,}}",  # GitLab
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
    rf"AIza{_WORD}{{35}}",  # Google
    rf"ya29\.{_WORD}{{20,}}",
    rf"GOCSPX-{_WORD}{{20,}}",
    r"xox[abeprs]-[A-Za-z0-9\-]{10,}",  # Slack
    r"xapp-[A-Za-z0-9\-]{20,}",
    r"(?:[rs]k|whsec)_(?:live_|test_)?[A-Za-z0-9]{24,}",  # Stripe
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}",
    rf"SG\.{_WORD}{{16,100}}\.{_WORD}{{16,}}",  # SendGrid
    r"SK[0-9a-f]{32}",  # Twilio
    r"key-[0-9a-f]{32}",  # Mailgun
    r"npm_[A-Za-z0-9]{36}",
    rf"pypi-{_WORD}{{40,}}",
    r"do[opr]_v1_[0-9a-f]{64}",  # DigitalOcean
    r"dapi[0-9a-f]{32}",  # Databricks
    r"r8_[A-Za-z0-9]{37}",  # Replicate
    # Groq, Perplexity, xAI, NVIDIA, Together
    rf"(?:gsk_|pplx-|xai-|nvapi-|tgp_v1_){_RANDOM}{_WORD}{{20,}}",
    rf"hv[sbr]\.{_WORD}{{20,}}",  # Vault
    rf"dckr_(?:pat|oat)_{_WORD}{{20,}}",
    r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}",  # Postman
    r"(?:lin_api|ntn|secret)_[A-Za-z0-9]{32,}",  # Linear, Notion
    r"sntry[su]_[A-Za-z0-9+/=_]{32,}",  # Sentry
    r"gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}",  # Grafana
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",  # Shopify
    r"ATATT3[A-Za-z0-9_\-=]{20,}",  # Atlassian
    rf"[0-9]{{8,10}}:AA{_WORD}{{33}}",  # Telegram
    r"AGE-SECRET-KEY-1[0-9A-Z]{50,}",
    rf"eyJ{_WORD}{{10,2000}}\.{_WORD}{{10,2000}}\.{_WORD}{{10,}}",  # JSON Web Tokens
)
_TOKEN = re.compile(rf"\b(?:{'|'.join(_SHAPES)})")

_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----)){0,20000}"
    r"(?:-----END [A-Z0-9 ]{0,60}-----)?"
)

_HOOK = re.compile(
    r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[A-Za-z0-9/_\-]{10,}"
)

_NAMES = (
    r"api[_-]?key|access[_-]?key(?:[_-]?id)?|account[_-]?key|shared[_-]?access[_-]?(?:key|signature)|"
    r"private[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|passw(?:or)?d|pwd|passphrase"
)
_NOTHING = r"(?!None\b|null\b|true\b|false\b|\[redacted\])"

# ?token=...&x-amz-signature=...
_QUERY = re.compile(
    rf"([?&;](?:{_NAMES}|[a-z_\-]{{0,20}}token|key|sig|auth|x-amz-(?:signature|credential)|"
    rf"x-goog-(?:signature|credential)|signature)=){_NOTHING}[^&\s#;\"'<>]+",
    re.IGNORECASE,
)
# password=..., 'api_key': '...', --client-secret ...
_ASSIGNED = re.compile(
    rf"((?<![A-Za-z0-9])(?:[A-Za-z0-9]{{1,20}}[_.\-]){{0,4}}(?:{_NAMES})"
    rf"(?:[\"']?\s{{0,3}}[=:]\s{{0,3}}b?[\"']?|(?<=[a-z])\s(?=[^\s=:\-]*[0-9]))){_NOTHING}"
    r"[^\s\"',;&)\]}]{4,}",
    re.IGNORECASE,
)
# "token" is a word of our trade: what is called so is a secret when it is assigned, and no number
_ASSIGNED_TOKEN = re.compile(
    rf"((?<![A-Za-z0-9])(?:[A-Za-z0-9]{{1,20}}[_.\-]){{0,4}}token(?:=|[\"']\s?[:=]\s?)b?[\"']?)"
    rf"{_NOTHING}(?![0-9.]+\b)[^\s\"',;&)\]}}]{{6,}}",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"\b(Authorization[\"']?\s?[:=]\s?[\"']?(?:Bearer |Basic |Token |Digest )?|Bearer )"
    r"[A-Za-z0-9._~+/=\-]{8,}",
    re.IGNORECASE,
)
# the whole of an address's user is a token where it is long and has no password
_USER = re.compile(r"\b([a-z][a-z0-9+.\-]{0,30}://)[^\s/:@]{20,200}@", re.IGNORECASE)


def looks_random(text: str) -> bool:
    """Whether a text has a part that is no word, number or name of a model: a key's is long."""
    return (
        re.search(r"(?=[A-Za-z]{0,15}[0-9])(?=[0-9]{0,15}[A-Za-z])[A-Za-z0-9]{16}", text)
        is not None
    )


def remember_secrets(value: Any) -> None:
    """Have the texts in a plain value redacted from now on, wherever they come up."""
    if isinstance(value, dict):
        for each in list(value.values()):
            remember_secrets(each)
    elif isinstance(value, list | tuple):
        for each in list(value):
            remember_secrets(each)
    elif isinstance(value, str) and len(value) <= 10_000 and _TELLING.fullmatch(value):
        _known.pop(value, None)
        _known[value] = None
        while len(_known) > _KNOWN:
            _known.pop(next(iter(_known)), None)


def redact_tokens(text: str, redacted: str) -> str:
    """Return a text with `redacted` in place of what looks like a token or a key.

    Linear in the text's length.
    """
    for secret in list(_known):
        text = text.replace(secret, redacted)
    text = _PEM.sub(redacted, text)
    text = _TOKEN.sub(redacted, text)
    for pattern in (_HOOK, _QUERY, _HEADER, _ASSIGNED, _ASSIGNED_TOKEN):
        text = pattern.sub(rf"\g<1>{redacted}", text)
    return _USER.sub(rf"\g<1>{redacted}@", text)
