"""Secrets stay out of the log, of what lies beside it, and of what errors say.

All tokens here are invented; they have the shapes that their providers document.
"""

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import eventlog
from eventlog._config import REDACTED, error_text, plain_config, redact_text
from eventlog.exceptions import SinkError, UnavailableError
from eventlog.sinks.base import RunInfo, Sink

A = "a1B2c3D4" * 8
HEX = "0a1b2c3d4e5f6789" * 4
TOKENS = {
    "openai": f"sk-proj-{A[:48]}",
    "anthropic": f"sk-ant-api03-{A[:40]}-{A[:30]}",
    "openrouter": f"sk-or-v1-{HEX}",
    "huggingface": f"hf_{A[:34]}",
    "huggingface organisation": f"api_org_{A[:34]}",
    "wandb": f"wandb_v1_{A[:40]}",
    "github": f"ghp_{A[:36]}",
    "github app": f"ghs_{A[:36]}",
    "github fine-grained": f"github_pat_{A[:22]}_{A[:59]}",
    "gitlab": f"glpat-{A[:20]}",
    "aws": "AKIA" + "ABCD1234" * 2,
    "aws session": "ASIA" + "ABCD1234" * 2,
    "google": f"AIza{A[:35]}",
    "google oauth": f"ya29.{A[:60]}",
    "google client": f"GOCSPX-{A[:28]}",
    "slack": f"xoxb-1234567890-1234567890123-{A[:24]}",
    "slack app": f"xapp-1-A0123456789-1234567890123-{HEX}",
    "stripe": f"sk_live_{A[:24]}",
    "stripe restricted": f"rk_test_{A[:24]}",
    "stripe webhook": f"whsec_{A[:32]}",
    "sendgrid": f"SG.{A[:22]}.{A[:43]}",
    "twilio": f"SK{HEX[:32]}",
    "mailgun": f"key-{HEX[:32]}",
    "npm": f"npm_{A[:36]}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{A[:60]}",
    "digitalocean": f"dop_v1_{HEX}",
    "databricks": f"dapi{HEX[:32]}",
    "replicate": f"r8_{A[:37]}",
    "groq": f"gsk_{A[:52]}",
    "perplexity": f"pplx-{A[:48]}",
    "xai": f"xai-{A}",
    "nvidia": f"nvapi-{A}",
    "vault": f"hvs.{A[:60]}",
    "docker": f"dckr_pat_{A[:27]}",
    "postman": f"PMAK-{HEX[:24]}-{HEX[:34]}",
    "linear": f"lin_api_{A[:40]}",
    "notion": f"ntn_{A[:46]}",
    "sentry": f"sntrys_{A[:60]}",
    "grafana": f"glsa_{A[:32]}_{HEX[:8]}",
    "shopify": f"shpat_{HEX[:32]}",
    "atlassian": f"ATATT3xFfGF0{A[:60]}",
    "telegram": f"123456789:AA{A[:33]}",
    "age": f"AGE-SECRET-KEY-1{'QPZRY9X8' * 8}",
    "json web token": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{A[:20]}.{A[:43]}",
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{A}\n{A}\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("provider", TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", "--key={} --lr 1", "'{}'", "cannot log in with {}, sorry", "u=https://h/p/{}"]
)
def test_tokens_of_common_providers_are_redacted(provider: str, around: str) -> None:
    """Wherever they stand in a text, and nothing but the token goes."""
    token = TOKENS[provider]
    found = redact_text(around.format(token))
    for piece in (token, token[8:], token.split("\n")[-1]):
        assert piece not in found
    assert REDACTED in found
    assert found.startswith(around.split("{}")[0][:6])


SAID = [
    ("postgres://me:hunter2@host/db", "hunter2"),
    ("https://0123456789abcdef01234567@git.example/x.git", "0123456789abcdef01234567"),
    ("https://h/v1?api_key=hunter2&x=1", "hunter2"),
    ("https://h/v1?x=1&access_token=hunter22", "hunter22"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Signature=abcdef0123&X-Amz-Date=1", "abcdef0123"),
    ("https://a.blob.core.windows.net/c?sv=1&sig=hunter2%3D", "hunter2"),
    ("https://hooks.slack.com/services/T0123/B0123/abcdefghijkl", "abcdefghijkl"),
    ("DefaultEndpointsProtocol=https;AccountKey=hunter2hunter2==;Name=n", "hunter2hunter2"),
    ("password=hunter2", "hunter2"),
    ("DB_PASSWORD=hunter2 python train.py", "hunter2"),
    ("{'api_key': 'hunter2', 'lr': 0.1}", "hunter2"),
    ('{"client_secret": "hunter2"}', "hunter2"),
    ('{"token": "hunter2"}', "hunter2"),
    ("login failed: token=hunter2 is wrong", "hunter2"),
    ("python train.py --api-key hunter2", "hunter2"),
    ("Authorization: Basic aHVudGVyMjpodW50ZXIy", "aHVudGVyMjpodW50ZXIy"),
    ("{'Authorization': 'Bearer hunter22'}", "hunter22"),
]


@pytest.mark.parametrize(("text", "secret"), SAID)
def test_what_is_said_to_be_secret_is_redacted(text: str, secret: str) -> None:
    """Passwords in addresses, signatures in queries, headers, and assignments in any text."""
    assert secret not in redact_text(text)
    assert secret not in repr(plain_config({"command": text}))
    assert secret not in error_text(RuntimeError(text))


@pytest.mark.parametrize(
    "text",
    [
        "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        "max_tokens=4096, n_token=12345678",
        "tokenizer=gpt2 token_type=bpe",
        "https://host:8080/a/b?step=10&page=2",
        "git@github.com:me/project.git",
        "the secret of good training; a password is none",
        "skip-connections-in-the-network",
        "/data/keys/2024/train.parquet",
        "unexpected token: 'foo'",
        "password=None",
    ],
)
def test_what_only_resembles_a_secret_stays(text: str) -> None:
    """A log that redacts hyperparameters is no record of them."""
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "piece",
    ["token=", "password", "a-", "a_token", "-----BEGIN PRIVATE KEY-----", "?key=", "Bearer ",
     "https://", "1234567890:AA", "sk_", "x.", "SG.aaaaaaaaaaaaaaaaaaaa"],
)  # fmt: skip
def test_no_text_makes_redaction_slow(piece: str) -> None:
    """200,000 characters of the beginnings of secrets take linear time."""
    begun = time.perf_counter()
    redact_text(piece * (200_000 // len(piece)))
    assert time.perf_counter() - begun < 10


class Leaky(Sink):
    """A sink whose SDK puts its whole configuration into what it raises."""

    name = "leaky"

    def open(self, run: RunInfo) -> None:
        raise ValueError(f"cannot connect with {{'api_key': 'hunter2'}} and {TOKENS['github']}")


def everything_in(folder: Path) -> bytes:
    found = [p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()]
    return b"\n".join(found)


def test_no_file_of_a_run_has_a_secret_that_was_in_its_description(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Config, tags, notes, summary, metadata, options, a sink's error, the error that ended it."""
    token = TOKENS["huggingface"]
    file = tmp_path / "weights"
    file.write_text("x")
    run = eventlog.Run(
        "p",
        dir=tmp_path / "runs",
        config={"api_key": "hunter2", "url": "s3://me:hunter2@host/", "cmd": f"--k {token}"},
        tags=["fine", token],
        notes=f"log in with {token}",
        sinks=[Leaky()],
    )
    with contextlib.suppress(RuntimeError), run:
        run.config.update({"db": {"password": "hunter2"}})
        run.step(loss=1.0, options={"wandb": {"token": "hunter2"}})
        run.artifact(file, metadata={"from": f"https://h/?token={token}", "secret": "hunter2"})
        run.summary.update({"access_token": "hunter2"})
        run.flush(5)
        raise RuntimeError("x" * 985 + f" {token}")
    assert run.dir is not None
    for text in (everything_in(tmp_path / "runs"), caplog.text.encode()):
        assert b"hunter2" not in text
        assert token.encode() not in text
        assert token[:12].encode() not in text
    started = next(eventlog.open_log(run.dir).events(types=["run_started"]))
    assert started.tags == ["fine", REDACTED]  # type: ignore[attr-defined]
    assert run.sink("leaky").error is not None


def test_our_own_errors_quote_no_secret() -> None:
    """Whatever an SDK's error said that they hand on, in a traceback as well."""
    for kind in (SinkError, UnavailableError, eventlog.exceptions.EventlogError):
        error = kind(f"the tracker said: {TOKENS['openai']} at https://u:hunter2@host")
        assert TOKENS["openai"] not in str(error)
        assert "hunter2" not in str(error)
        with pytest.raises(SystemExit):
            raise SystemExit(str(error))


SIDECAR = """
from eventlog.sinks.base import Sink

class Telling(Sink):
    name = "telling"
    def __init__(self, api_key="", uri=""):
        self._key = api_key
    def open(self, run):
        import logging
        try:
            raise ValueError(f"{{'api_key': '{self._key}'}}")
        except ValueError:
            logging.getLogger("sdk").exception("no luck")
        raise ValueError(f"key={self._key} https://u:{self._key}@host")
"""


def test_the_sidecar_gets_secrets_and_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in no file and in no report, also when a sink tells them."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "telling.py").write_text(SIDECAR)
    monkeypatch.syspath_prepend(tmp_path / "site")
    secret = "hunter2hunter2"  # noqa: S105 - invented
    sinks = {"t": {"sink": "telling:Telling", "isolate": True, "api_key": secret}}
    run = eventlog.Run("p", dir=tmp_path / "runs", sinks=sinks)
    run.step(loss=1.0)
    deadline = time.monotonic() + 40
    while run.sink("t").error is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "ValueError" in str(run.sink("t").error)
    run.close(timeout=10)
    assert secret.encode() not in everything_in(tmp_path / "runs")
    assert b"no luck" in everything_in(tmp_path / "runs")


CHILD = """
import os, sys
os.umask(int(sys.argv[2], 8))
import eventlog, pathlib
source = pathlib.Path(sys.argv[1], "open-to-all"); source.write_text("x"); source.chmod(0o777)
sinks = {"copy": {"sink": "log"}, "tensorboard": {"isolate": True}}
with eventlog.Run("p", dir=sys.argv[1] + "/runs", sinks=sinks) as run:
    for step in range(3):
        run.step(loss=1.0)
    run.artifact(source, copy=True)
    run.sync()
eventlog.replay(run.dir, {"tensorboard": {}})
"""


@pytest.mark.parametrize(("umask", "forbidden"), [("077", 0o077), ("022", 0o022), ("027", 0o027)])
def test_files_have_the_rights_that_the_umask_leaves(
    tmp_path: Path, umask: str, forbidden: int
) -> None:
    """Log, blobs, checkpoints, reports and trackers' files; and they are not tighter, either."""
    command = [sys.executable, "-c", CHILD, str(tmp_path), umask]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    names: list[str] = []
    for path in [*(tmp_path / "runs").rglob("*"), tmp_path / "runs"]:
        mode = path.stat().st_mode & 0o777
        names.append(path.name)
        assert not mode & forbidden, f"{path} {mode:o}"
        if path.is_file():
            assert mode & 0o666 == 0o666 & ~forbidden, f"{path} {mode:o}"
    kinds: Sequence[str] = [".elog", ".ckpt", "sidecar.json", "sinks.json", "manifest.json",
                            "tfevents", "sidecar-0.log"]  # fmt: skip
    for kind in kinds:
        assert any(kind in name for name in names), f"no {kind} among {names}"
    assert any((tmp_path / "runs").rglob("blobs/*"))


def test_the_environment_and_the_command_line_are_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They hold secrets more often than not."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_API_KEY", "hunter2hunter2")
    monkeypatch.setattr(sys, "argv", ["train.py", "--password", "hunter3hunter3"])
    with eventlog.Run("p", dir=tmp_path) as run:
        run.step(loss=1.0)
    assert b"hunter" not in everything_in(tmp_path)
    assert "hunter" not in caplog.text
    assert os.environ["SOME_API_KEY"] == "hunter2hunter2"
