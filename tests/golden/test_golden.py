"""Logs of earlier versions: what lies here was written then, and is read now to the letter."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from eventlog.codec import encode_foreign
from eventlog.events import Event, UnknownEvent
from eventlog.log.layout import BlockKind, Codec
from eventlog.log.seal import compact_log
from eventlog.log.segment_reader import list_segments
from eventlog.log.stored import StoredSource
from eventlog.recorder import Recorder

from .make_golden import FOLDER, found_in, make


def expected() -> object:
    return json.loads((FOLDER / "expected.json").read_text())


def as_text(found: object) -> str:
    """Return JSON text: there, 1 and 1.0 and true are three things."""
    return json.dumps(found, indent=1)


def test_the_golden_log_is_read_as_it_was() -> None:
    """Every field of every event, each block, and what is damaged, dropped and superseded."""
    assert as_text(found_in(FOLDER)) == as_text(expected())


def test_the_golden_log_has_all_that_there_is() -> None:
    """All types of events of the package, attempts, codecs, records and an unknown type.

    A type that comes later has no place in a log of today: make another golden log for it.
    """
    found = found_in(FOLDER)
    ours = {
        kind.__struct_config__.tag
        for kind in Event.__subclasses__()
        if kind.__module__ == Event.__module__
    }
    assert {event["type"] for event in found["events"]} == ours
    blocks = [block for segment in found["segments"] for block in segment["blocks"]]
    assert {block[0] for block in blocks} | {"HEADER"} == {kind.name for kind in BlockKind}
    assert {block[1] for block in blocks if block[0] == "EVENTS"} == {Codec.NONE, Codec.ZLIB}
    assert [segment["header"]["attempt"] for segment in found["segments"]] == [1, 2, 3]
    assert found["superseded"]
    assert found["damage"]


def test_this_version_writes_the_same(tmp_path: Path) -> None:
    """Made again, the log differs in the schema, which knows all types that there are."""
    make(tmp_path)
    made, stored = found_in(tmp_path), found_in(FOLDER)
    for found in (made, stored):
        # where the tail begins depends on how long the schema is
        found["damage"] = [[name, length, why] for name, _, length, why in found["damage"]]
    assert as_text(made) == as_text(stored)


def test_a_golden_log_is_gone_on_with(tmp_path: Path) -> None:
    """It can be compacted and resumed, and what a later version wrote stays as it was."""
    shutil.copytree(FOLDER / "rank-0", tmp_path / "rank-0")
    before = found_in(tmp_path)["events"]
    done = list(compact_log(tmp_path / "rank-0"))
    assert [one.skipped for one in done] == [None, "it is compact already", "it is damaged"]
    recorder = Recorder(tmp_path, run_id="golden-1")
    assert recorder.attempt == 4
    reader = StoredSource(tmp_path / "rank-0").open_reader()
    block = reader.read(40)
    assert block is not None
    (unknown,) = (e for e in block.events() if isinstance(e, UnknownEvent))
    recorder.inbox.put(unknown)
    recorder.writer.turn()
    recorder.stop(None)
    after = found_in(tmp_path)["events"]
    assert as_text(after[:-1]) == as_text(before)
    assert after[-1]["seq"] == 44
    # but for its attempt, which is the log's, an event of an unknown type is as it was
    assert after[-1]["raw"] == before[40]["raw"]
    assert encode_foreign([unknown])[1:].hex() == before[40]["raw"]
    assert len(list_segments(tmp_path / "rank-0")) == 4
