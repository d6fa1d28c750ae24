"""What the conformance tests log: one run that has everything of every kind, and smaller ones."""

from __future__ import annotations

import enum
import importlib.util
import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from eventlog.events import Event
from eventlog.run import Run

__all__ = [
    "CONFIG",
    "KINDS",
    "LABELS",
    "ODD_NAMES",
    "SPECIALS",
    "SUMMARY",
    "Checkpointed",
    "log_again",
    "log_everything",
    "log_first_part",
    "log_second_part",
]

STEPS: Final = 40
KIND_STEPS: Final = range(3, 6)
NAMES_STEP: Final = 6
SPECIAL_STEPS: Final = range(7, 10)
MEDIA_STEP: Final = 11


class Colour(enum.Enum):
    """One of a configuration's odder values."""

    TEAL = 3


class Checkpointed(Event, tag="conformance_checkpointed", frozen=True, kw_only=True):
    """A user's own event."""

    path: str = ""
    size: int = 0


KINDS: Final[Mapping[str, str]] = {
    "float": "kind_float_v",
    "int": "kind_int_v",
    "bool": "kind_bool_v",
    "str": "kind_str_v",
    "np.float16": "kind_half_v",
    "np.float32": "kind_single_v",
    "np.float64": "kind_double_v",
    "np.int64": "kind_long_v",
    "np.bool_": "kind_truth_v",
    "torch float32": "kind_tensor_v",
    "torch bfloat16": "kind_brain_v",
    "0-d array": "kind_array_v",
    "nested mapping": "kind_nested_v/inner/leaf",
}
"""The key under which a value of each kind is logged."""

SPECIALS: Final[Mapping[str, tuple[str, list[float]]]] = {
    "NaN": ("special_nan_v", [211.5, math.nan, 212.5]),
    "infinity": ("special_inf_v", [math.inf, 213.5, -math.inf]),
    "big integer": ("special_big_v", [2**53 + 1, 214, 2**63 - 1]),
    "tiny": ("special_tiny_v", [1e-300, 215.5, -1e-300]),
}
"""Numbers that trackers drop or change: the key and the values, by cell of the table."""

ODD_NAMES: Final = (
    "", "timing(s)/gen", "val/AR@100", "n:estimators", "../../x", "a\\b", "CON", "long" * 2500,
    "long" * 2499 + "gnol", "\U0001f600", "\udc80", "foo", "foo/bar", "bar/foo", "bar", "Loss",
    "loss", "LOSS", " lead", "trail ", "a b", "a_b", "a-b", "a.b", "a//b", "a/b", "/a", "a/", ".",
    "a\nb", "%s", "{run_id}", "t\u00e9l\u00e9", "a|b", "a?b", "<a>", "0", "step", "epoch", "batch",
    "_step", "_timestamp", "time", "timestamp", "value", "name",
)  # fmt: skip
"""Names that trackers reject, change, or take for one another or for their own."""

CONFIG: Final[dict[str, Any]] = {
    "lr": 0.25,
    "flag": True,
    "layers": [64, 32],
    "nothing": None,
    "path": Path("/data/images"),
    "colour": Colour.TEAL,
    "optimizer": {"name": "adam", "betas": [0.5, 0.75], "extra": {"eps": 0.125}},
    "text": "words" * 1400,
    **{f"many{i:03d}": i for i in range(300)},
}
"""Hyperparameters of any shape; 300 of them, one of 7,000 characters."""

LATER_CONFIG: Final[dict[str, Any]] = {"lr": 0.5, "warmup": 500}
SUMMARY: Final[dict[str, Any]] = {"best": {"accuracy": 0.875}, "verdict": "rather-good"}
LABELS: Final[dict[str, Any]] = {
    "name": "everything-there-is",
    "group": "group-of-one",
    "notes": "Notes that somebody made.",
    "tags": ["red", "blue"],
}


def kinds(number: int) -> dict[str, Any]:
    """Return a value of each kind; the `number`-th of three."""
    import numpy as np

    half, truth = 30.5 + 0.25 * number, number != 1
    values: dict[str, Any] = {
        "kind_float_v": 1 / 3 + number,
        "kind_int_v": 41 + number,
        "kind_bool_v": truth,
        "kind_str_v": f"word-{number}",
        "kind_half_v": np.float16(half),
        "kind_single_v": np.float32(half + 10),
        "kind_double_v": np.float64(half + 20),
        "kind_long_v": np.int64(101 + number),
        "kind_truth_v": np.bool_(truth),
        "kind_tensor_v": np.float32(half + 40),
        "kind_brain_v": np.float16(half + 50),
        "kind_array_v": np.array(half + 60),
        "kind_nested_v": {"inner": {"leaf": half + 70}},
    }
    if importlib.util.find_spec("torch") is not None:
        import torch

        values["kind_tensor_v"] = torch.tensor(half + 40, requires_grad=True)
        values["kind_brain_v"] = torch.tensor(half + 50, dtype=torch.bfloat16)
    return values


def png(width: int, height: int, shade: int) -> bytes:
    """Return a grey picture as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes([shade]) * width) * height)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


class Drawing:
    """As much of a matplotlib figure as is asked for."""

    def savefig(self, file: IO[bytes], format: str) -> None:
        """Write a picture."""
        file.write(png(24, 16, 90))


def log_everything(run: Run, files: Path) -> None:
    """Log each kind of thing there is; media and the like once, with a word to find them by."""
    for step in range(STEPS):
        if step in KIND_STEPS:
            run.log(kinds(step - KIND_STEPS.start))
        if step == NAMES_STEP:
            run.log({name: 3001 + number for number, name in enumerate(ODD_NAMES)})
        if step in SPECIAL_STEPS:
            at = step - SPECIAL_STEPS.start
            run.log({key: values[at] for key, values in SPECIALS.values()})
        if step == MEDIA_STEP:
            _log_media(run, files)
        if 12 <= step < 16:
            run.batch(micro=1201.5 + 2 * step)
            run.batch(micro=1202.5 + 2 * step)
        if step % 4 == 3:
            # one name on two axes, of which the other one lags behind
            run.log({"both": 1301.5 + step})
            run.log({"both": 1401.5 + step}, step=step // 4, axis="val_step")
        if step == 20:
            run.flush()
        if step == 30:
            _log_the_rest(run)
        run.step(curve=501.5 + 7 * step % STEPS)
        if step % 10 == 9:
            run.epoch(accuracy=1501.5 + step)


def _log_media(run: Run, files: Path) -> None:
    run.text("remark", "A remark with *emphasis*.")
    run.image("picture", png(20, 12, 40), caption="caption-of-it")
    run.image("gallery", [png(8, 8, 10), png(8, 8, 20)])
    run.figure("drawing", Drawing())
    run.histogram("spread", [float(n) for n in range(100)], bins=10)
    run.table("grid", [["alpha-cell", 31337], ["beta|cell", None]], ["label", "amount"])
    for name, copy in (("parcel", True), ("letter", False)):
        path = files / f"{name}.bin"
        path.write_bytes(f"contents of the {name}".encode() * 10)
        run.artifact(path, name, kind="dataset", metadata={"rows": 3}, copy=copy)


def _log_the_rest(run: Run) -> None:
    run.model_updated("pruning", sparsity=1601.5, layers=["conv-of-five"])
    run.emit(Checkpointed(path="/checkpoints/weights-of-six.pt", size=7, values={"own": 1701.5}))
    run.config.update(LATER_CONFIG)
    run.summary.update(SUMMARY)


def log_curve(run: Run) -> None:
    """Log a few points of one curve."""
    for step in range(10):
        run.step(curve=2601.5 + step)


def log_first_part(run: Run) -> None:
    """Log what a run does before it is interrupted."""
    for step in range(10):
        run.step(part=2001.5 + step)
        run.batch(small=2101.5 + step)


def log_second_part(run: Run, state: Mapping[str, Any]) -> None:
    """Log what it does once it is resumed."""
    run.load_state_dict(state)
    for step in range(10, 20):
        run.step(part=2001.5 + step)
        run.batch(small=2101.5 + step)


def log_again(run: Run) -> None:
    """Log ten steps, and the last five of them again; of these only three."""
    for step in range(10):
        run.step(redone=2201.5 + step)
    run.rewind(5)
    for step in range(5, 8):
        run.step(redone=2301.5 + step)
