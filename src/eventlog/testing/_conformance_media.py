"""What a tracker made of media, of files and of a user's events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from eventlog.testing import _conformance_script as script
from eventlog.testing._conformance_curves import Verdict
from eventlog.testing._conformance_kit import SinkDescription
from eventlog.testing.shown import At, Shown

__all__ = ["MEDIA", "judge_media"]


class Medium(NamedTuple):
    """How a kind of thing is recognised.

    Attributes:
        capability: What a sink declares that shows it.
        words: One for each that was logged; a part of the name, or of the text, under which it is.
        own: The fields of `Shown` that it belongs to.
        contents: What must be in it, where it can be read back as text.
    """

    capability: str
    words: tuple[str, ...]
    own: tuple[str, ...]
    contents: tuple[str, ...] = ()


MEDIA: Mapping[str, Medium] = {
    "text": Medium("text", ("remark",), ("texts",), ("A remark with", "emphasis")),
    "image": Medium("image", ("picture", "gallery"), ("images",)),
    "figure": Medium("figure", ("drawing",), ("figures", "images")),
    "histogram": Medium("histogram", ("spread",), ("histograms",)),
    "table": Medium("table", ("grid",), ("tables",), ("alpha-cell", "31337", "cell", "amount")),
    "artifact": Medium("artifact", ("parcel", "letter"), ("artifacts",)),
    "model update": Medium("model_update", ("pruning",), ("model_updates",), ("conv-of-five",)),
    "custom event": Medium("custom", ("weights-of-six",), ("texts", "model_updates", "tables")),
}

_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_STEPS = {"model update": 30, "custom event": 30, "artifact": None}


class Found(NamedTuple):
    """One thing that is shown."""

    field: str
    name: str
    at: At
    what: Any


def _entries(shown: Shown) -> list[Found]:
    found = [
        Found(field, name, at, what)
        for field in ("texts", "images", "figures", "histograms", "tables")
        for name, points in getattr(shown, field).items()
        for at, what in points
    ]
    found += [Found("artifacts", name, None, what) for name, what in shown.artifacts.items()]
    found += [Found("model_updates", "", None, text) for text in shown.model_updates]
    return found


def _concerns(word: str, found: Found) -> bool:
    if word in found.name.casefold():
        return True
    return isinstance(found.what, str) and word in found.what


def judge_media(
    cell: str,
    kit: SinkDescription,
    shown: Shown,
    unshown: Mapping[str, int],
    images: int,
) -> Verdict:
    """Say what became of a kind of thing.

    Args:
        cell: One of `MEDIA`.
        kit: The sink's description.
        shown: What the tracker shows.
        unshown: What was counted.
        images: How many images were logged.
    """
    medium = MEDIA[cell]
    declared = kit.declares(medium.capability)
    reason, counted = kit.explained(cell, unshown)
    own: list[Found] = []
    elsewhere: list[Found] = []
    absent: list[str] = []
    for word in medium.words:
        found = [one for one in _entries(shown) if _concerns(word, one)]
        mine = [one for one in found if one.field in medium.own]
        own += mine
        elsewhere += found if not mine else []
        absent += [] if found else [word]
    if own and not elsewhere and not absent:
        if not declared:
            if counted:
                return Verdict("converted", reason)
            return Verdict("wrong", f"{cell}: shown, but {medium.capability!r} is not declared")
        fault = _fault(cell, medium, own, images)
        return Verdict("wrong", f"{cell}: {fault}") if fault else Verdict("shown")
    if declared:
        where = sorted({one.field for one in elsewhere}) or "nowhere"
        return Verdict(
            "wrong", f"{cell}: {medium.capability!r} is declared, but it is shown in {where}"
        )
    if not counted:
        return Verdict("wrong", f"{cell}: shown in {elsewhere[:2] or 'no place'}, not counted")
    return Verdict("converted" if elsewhere and not absent else "impossible", reason)


def _fault(cell: str, medium: Medium, own: list[Found], images: int) -> str | None:
    """Return what is wrong with what is shown; None where all is well."""
    step = _STEPS.get(cell, script.MEDIA_STEP)
    for one in own:
        if one.at is not None and one.at != step:
            return f"{one.name!r} is at {one.at}, not at {step}"
    if cell == "artifact":
        return _artifact_fault(own)
    if cell in ("image", "figure"):
        return _image_fault(own, images if cell == "image" else 1)
    text = " ".join(str(one.what) for one in own)
    lost = [part for part in medium.contents if part not in text]
    return f"{lost} is not in {text[:300]!r}" if lost else None


def _artifact_fault(own: list[Found]) -> str | None:
    for one in own:
        name = "parcel" if "parcel" in one.name.casefold() else "letter"
        if isinstance(one.what, bytes) and one.what != f"contents of the {name}".encode() * 10:
            return f"the contents of {one.name!r} are not those of the file"
    return None


def _image_fault(own: list[Found], images: int) -> str | None:
    if len(own) < images:
        return f"{len(own)} of {images} are there"
    for one in own:
        if isinstance(one.what, bytes) and not one.what.startswith(_PICTURES):
            return f"the bytes of {one.name!r} are no picture: {one.what[:12]!r}"
    return None
