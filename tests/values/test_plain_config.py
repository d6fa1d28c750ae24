"""Hyperparameters of any shape are kept whole, and secrets are not kept at all."""

import argparse
import dataclasses
import enum
import pathlib
import time
import types
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from eventlog._config import REDACTED, plain_config, redact_text


class Colour(enum.Enum):
    RED = 1


class Evil:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Worse:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


@dataclasses.dataclass
class Options:
    lr: float = 0.1
    path: pathlib.Path = pathlib.Path("/data")


class Fields(msgspec.Struct):
    a: int = 1


class WithDict:
    def to_dict(self) -> dict[str, Any]:
        return {"b": 2}


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (None, {}),
        ({"a": 1}, {"a": 1}),
        (Options(), {"lr": 0.1, "path": "/data"}),
        (Fields(), {"a": 1}),
        (WithDict(), {"b": 2}),
        (argparse.Namespace(x=1), {"x": 1}),
        (types.SimpleNamespace(y=None), {"y": None}),
        (types.MappingProxyType({"z": 3}), {"z": 3}),
    ],
)
def test_configurations_of_any_kind(given: Any, plain: dict[str, Any]) -> None:
    """Mappings, dataclasses, structs, namespaces and objects with to_dict are taken apart."""
    assert plain_config(given) == plain
    assert plain_config({"inner": given})["inner"] == (plain if given is not None else None)


@pytest.mark.parametrize("given", [3, "text", [1], object(), Options])
def test_what_is_no_configuration_is_a_type_error(given: Any) -> None:
    """The error says what may be given."""
    with pytest.raises(TypeError, match="config must be a mapping"):
        plain_config(given)


def test_values_of_any_type() -> None:
    """What has no plain value becomes its text; nothing raises."""
    found = plain_config(
        {
            "enum": Colour.RED,
            "device": torch.device("cpu"),
            "dtype": torch.bfloat16,
            "function": time.sleep,
            "lambda": lambda: 1,
            "class": Options,
            "range": range(0, 10, 2),
            "tuple": (1, (2, 3)),
            "numpy": np.float32(0.5),
            "array": np.arange(3),
            "tensor": torch.tensor([2]),
            "meta": torch.empty(1, device="meta"),
            "nan": float("inf"),
            "big": 2**70,
            "huge": 10**5_000,
            "evil": Evil(),
            "worse": Worse(),
            "surrogate": "a\ud800",
            ("a", 1): 1,
            5: 5,
        }
    )
    assert found["enum"] == "RED"
    assert found["device"] == "cpu"
    assert found["dtype"] == "torch.bfloat16"
    assert found["function"] == "time.sleep"
    assert found["lambda"].endswith("<lambda>")
    assert found["class"].endswith("Options")
    assert found["range"] == "range(0, 10, 2)"
    assert found["tuple"] == [1, [2, 3]]
    assert found["numpy"] == 0.5
    assert found["array"] == "[0 1 2]"
    assert found["tensor"] == 2
    assert "meta" in found["meta"]
    assert found["nan"] == float("inf")
    assert found["big"] == str(2**70)
    assert found["huge"].startswith("0x")
    assert found["evil"] == "[Evil, whose text raised RuntimeError]"
    assert "Worse" in found["worse"]
    assert found["surrogate"] == "a?"
    assert found["('a', 1)"] == 1
    assert found["5"] == 5
    msgspec.msgpack.encode(found)


def test_size_and_depth() -> None:
    """300 keys and 7,000 characters are kept whole; depth, cycles and endless lists end."""
    many: dict[str, Any] = {f"key{n}": "x" * 7_000 for n in range(300)}
    assert plain_config(many) == many
    cycle: dict[str, Any] = {"a": 1}
    cycle["self"] = cycle
    cycle["list"] = [cycle]
    assert plain_config(cycle) == {"a": 1, "self": "[cycle]", "list": ["[cycle]"]}
    deep: dict[str, Any] = {}
    for _ in range(2_000):
        deep = {"k": deep}
    msgspec.msgpack.encode(plain_config(deep))
    assert plain_config({"l": list(range(10_005))})["l"][-1] == "[5 more]"


@pytest.mark.parametrize(
    "key",
    [
        "api_key", "API_KEY", "apiKey", "api-key", "wandb.api_key", "WANDB_API_KEY", "openaiApiKey",
        "token", "hf_token", "HF_TOKEN", "accessToken", "password", "db_password", "dbPassword",
        "passwd", "pwd", "secret", "client_secret", "clientSecret", "AWS_SECRET_ACCESS_KEY",
        "private_key", "credentials", "authorization", "passphrase",
    ],
)  # fmt: skip
def test_values_under_secret_keys_are_redacted(key: str) -> None:
    """Whatever way of writing, at any depth, also in containers."""
    assert plain_config({key: "hunter2"}) == {key: REDACTED}
    assert plain_config({"a": [{key: "hunter2"}]}) == {"a": [{key: REDACTED}]}
    assert plain_config({key: b"hunter2"}) == {key: REDACTED}
    if "oken" not in key and "OKEN" not in key:
        assert "hunter2" not in repr(plain_config({key: ["hunter2", {"x": "hunter2"}]}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_tokens", 100),
        ("tokenizer", "gpt2"),
        ("tokens", ["<s>", "</s>"]),
        ("keyboard", "x"),
        ("secretary", "x"),
        ("token", None),
        ("password", ""),
        ("author", "me"),
        ("compass", "north"),
    ],
)
def test_what_only_resembles_a_secret_is_kept(key: str, value: Any) -> None:
    """Numbers of tokens, tokenizers and empty values are hyperparameters."""
    assert plain_config({key: value}) == {key: value}


SECRETS = [
    "sk-" + "a1B2" * 8,
    "hf_" + "aB3d" * 8,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "AKIA" + "ABCD1234" * 2,
    "xoxb-123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_tokens_are_redacted_in_any_text(secret: str) -> None:
    """The shapes that providers document are found wherever they stand."""
    for text in (secret, f"--key={secret} --lr 1", f"Bearer {secret}", f'{{"x": "{secret}"}}'):
        assert secret not in redact_text(text)
        assert REDACTED in redact_text(text)
        assert secret not in repr(plain_config({"command": text, "list": [text]}))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgres://me:hunter2@host/db", f"postgres://me:{REDACTED}@host/db"),
        ("https://:hunter2@host", f"https://:{REDACTED}@host"),
        ("redis://me:p@ss@host:1/0", f"redis://me:{REDACTED}@host:1/0"),
        ("see http://host:80/a@b", "see http://host:80/a@b"),
        ("mailto:me@host", "mailto:me@host"),
        ("a:b@c", "a:b@c"),
    ],
)
def test_passwords_in_addresses_are_redacted(text: str, kept: str) -> None:
    """The address stays, its password goes."""
    assert redact_text(text) == kept


@pytest.mark.parametrize("piece", ["a.", "eyJ-", "sk-", "a://b:", "x", "://", "a+b-c."])
def test_redaction_takes_linear_time(piece: str) -> None:
    """No text makes the search for secrets slow."""
    start = time.perf_counter()
    redact_text(piece * (200_000 // len(piece)))
    assert time.perf_counter() - start < 5
