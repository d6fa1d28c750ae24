"""Bytes put together by hand against what TensorBoard's own libraries make of them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from eventlog.sinks.plain import flatten as leaves
from eventlog_tensorboard.folders import folder_name
from eventlog_tensorboard.records import create_event_file, frame, replace_event_file
from eventlog_tensorboard.summaries import scalar_prefix, scalars_event, varint

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(st.binary(max_size=5000))
def test_framing_is_tensorboards(data: bytes) -> None:
    """A record has the bytes that TensorBoard's own writer gives it."""

    class Sink:
        data = b""

        def write(self, data: bytes) -> None:
            self.data += data

    sink = Sink()
    RecordWriter(sink).write(data)
    assert frame(data) == sink.data


@given(
    st.floats(allow_nan=False),
    INT64,
    st.lists(st.tuples(TEXT, st.floats(width=32, allow_nan=False)), min_size=1, max_size=5),
)
def test_scalars_are_what_protobuf_writes(
    wall_time: float, step: int, values: list[tuple[str, float]]
) -> None:
    """A hand-made event parses to the same message as one that the library builds."""
    packed = b"".join(scalar_prefix(tag) + struct.pack("<f", value) for tag, value in values)
    ours = event_pb2.Event.FromString(scalars_event(wall_time, step, packed))
    theirs = event_pb2.Event(wall_time=wall_time, step=step)
    for tag, value in values:
        theirs.summary.value.add(tag=tag, simple_value=value)
    assert ours == theirs
    if wall_time:  # the library leaves out a zero
        assert scalars_event(wall_time, step, packed) == theirs.SerializeToString()


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**63 - 1, -1, -(2**63)])
def test_varints(number: int) -> None:
    """Every int64 is written as protobuf does."""
    event = event_pb2.Event(step=number).SerializeToString()
    assert event == (b"\x10" + varint(number) if number else b"")


@given(st.text(max_size=200), st.text(max_size=200))
def test_folder_names_never_collide(one: str, other: str) -> None:
    """Two axes have two folders, and each name is one part of a path that is in no way special."""
    names = folder_name(one), folder_name(other)
    assert (names[0] == names[1]) == (one == other)
    for name in names:
        assert "/" not in name
        assert "\0" not in name
        assert name not in ("", ".", "..")
        assert len(name.encode()) < 255


@pytest.mark.parametrize(
    "axis", ["CON", "nul.txt", "Com1", "aux ", "CONIN$", "x.", "x ", "..", "é" * 90]
)
def test_folders_can_be_copied_to_windows(axis: str) -> None:
    """No device's name, no end that is cut off there, not much of the length of a path."""
    name = folder_name(axis)
    stem = name.partition(".")[0].rstrip(" ").upper()
    assert stem not in {"CON", "NUL", "COM1", "AUX", "CONIN$"}
    assert name[-1] not in ". "
    assert len(name) <= 80


@given(st.recursive(st.none() | st.integers(), lambda x: st.dictionaries(st.text(max_size=3), x)))
def test_no_leaf_is_lost(value: object) -> None:
    """Flattening keeps every value, whatever the names."""

    def count(x: object) -> int:
        return sum(map(count, x.values())) if isinstance(x, dict) and x else 1

    assert len(leaves({"root": value})) == count(value)


def test_files_sort_in_the_order_of_their_making(tmp_path: Path) -> None:
    """A later file of a folder is read later, whatever the clock says."""
    paths = [create_event_file(tmp_path, s, "", b"").path for s in (5, 5, 3, 1_700_000_000, 4, -1)]
    assert paths == sorted(paths)


def test_a_file_that_cannot_be_begun_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing remains of a file whose first records cannot be written."""

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        create_event_file(tmp_path, 1, "", b"x")
    assert not list(tmp_path.iterdir())


def test_a_replaced_file_is_whole_or_as_before(tmp_path: Path) -> None:
    """When a file cannot be replaced, no draft stays behind."""
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_event_file(path, b"x")
    assert list(tmp_path.iterdir()) == [path]


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    """Writing to a closed file raises instead of hitting another file's descriptor."""
    file = create_event_file(tmp_path, 1, "", b"x")
    file.close()
    file.close()
    file.settle()
    with pytest.raises(OSError, match="closed"):
        file.write(b"x")
    assert not file.take_back()
