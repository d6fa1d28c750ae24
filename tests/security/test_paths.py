"""No name that is read from a run's directory leads out of it, and no file there makes us wait."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from typer.testing import CliRunner

import eventlog
from eventlog._meeting import JobRecord, Meeting
from eventlog._paths import below, open_regular, own_directory, read_json, read_small, replace_file
from eventlog._platform import FileLock, lock_is_held
from eventlog._ranks import Job
from eventlog._run_places import choose_run
from eventlog._terms import DEADLINES, RETRY, kept_terms
from eventlog.cli.app import app
from eventlog.events import ArtifactEvent, BlobRef, Event, FigureEvent, StepEvent
from eventlog.exceptions import EventlogError, LogError, NotALogError
from eventlog.log.blobs import BlobStore, blob_file
from eventlog.log.checkpoint import CheckpointFile, list_checkpoints
from eventlog.ranks import read_order
from eventlog.sidecar import deliver_plan, read_status
from eventlog.sinks import RunInfo, TrackerSink
from eventlog.sinks.names import Names
from eventlog.sinks.plan import read_plan

from .hostile import DIGEST, PNG, SECRET, holds, hostile_events, names, tree, write_log


class Place:
    """A run, beside a folder that is none of its business.

    Attributes:
        run: The run's directory.
        outside: A folder with a file `secret`, two levels up.
        copies: Where sinks may write.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.run = base / "runs" / "p" / "r"
        self.outside = base / "outside"
        self.copies = base / "copies"
        for folder in (self.run, self.outside, self.copies):
            folder.mkdir(parents=True)
        (self.outside / "secret").write_bytes(SECRET)
        self._before: dict[str, Any] = {}

    def untouched(self) -> bool:
        """Whether nothing but the run and the copies has changed, and no secret got there."""
        leaked = holds(self.run, SECRET) + holds(self.copies, SECRET)
        assert not leaked, leaked
        return tree(self.base, [self.run, self.copies]) == self._before

    def remember(self) -> None:
        self._before = tree(self.base, [self.run, self.copies])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a place; afterwards nothing outside of the run may have changed."""
    monkeypatch.chdir(tmp_path)
    made = Place(tmp_path)
    made.remember()
    yield made
    assert made.untouched()


class Uploads(TrackerSink):
    """A tracker that takes each file that it is shown, to where everybody can see it."""

    name = "uploads"
    capabilities = frozenset({"image", "figure", "artifact", "text", "config", "scalars"})

    def __init__(self, to: Path) -> None:
        super().__init__()
        self._to = to
        self.run_id = "u"

    def take(self, path: Path | None) -> None:
        if path is not None:
            data = path.read_bytes() if path.is_file() else b"a folder"
            (self._to / f"{len(list(self._to.iterdir()))}").write_bytes(data)

    def numbers(self, event: Any, axis: Any, at: Any, values: Any) -> None:
        pass

    def image(self, event: Any, axis: Any, at: Any, tag: Any, images: Any, caption: Any) -> None:
        for path, _ in images:
            self.take(path)

    def figure(self, event: Any, axis: Any, at: Any, tag: Any, path: Path, blob: Any) -> None:
        self.take(path)

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        self.take(path)


SPECIAL: dict[str, Callable[[Path, Place], object]] = {
    "a link": lambda path, place: path.symlink_to(place.outside / "secret"),
    "a link to nothing": lambda path, place: path.symlink_to(place.outside / "new"),
    "a link to a folder": lambda path, place: path.symlink_to(place.outside),
    "a pipe": lambda path, place: os.mkfifo(path),
    "a device": lambda path, place: path.symlink_to("/dev/zero"),
    "a terminal": lambda path, place: path.symlink_to("/dev/tty"),
    "itself": lambda path, place: path.symlink_to(path),
    "a folder": lambda path, place: path.mkdir(),
}
special = pytest.mark.parametrize("what", SPECIAL)


def put(what: str, path: Path, place: Place) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    SPECIAL[what](path, place)
    return path


@pytest.mark.parametrize("name", names(Path("/tmp/outside")))  # noqa: S108 - never made
def test_a_name_is_one_component_or_nothing(tmp_path: Path, name: str) -> None:
    """On every system: no separator, no drive, no device, no way up."""
    try:
        path = below(tmp_path, name)
    except ValueError:
        return
    assert path.parent == tmp_path
    assert path.name == name
    assert not set(name) & set('/\\:*?"<>|\0\n')


@special
def test_opening_takes_regular_files_only(place: Place, what: str) -> None:
    """Neither a link nor a pipe nor a device is opened, for reading or for writing, and nothing
    waits for the other end of a pipe."""
    path = put(what, place.run / "x", place)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT):
        with pytest.raises(OSError, match=r".*"):
            open_regular(path, flags)
    for read in (read_small, read_json):
        with pytest.raises(OSError, match=r".*"):
            read(path)


@special
def test_every_file_of_a_run_may_be_something_else(place: Place, what: str) -> None:
    """Manifests, reports, orders, tables, checkpoints, locks and segments: as if not there."""
    run = place.run
    write_log(run, [StepEvent(step=1)])
    rank = run / "rank-0"
    for path in (
        run / "manifest.json", run / "sinks.json", run / "delivery.json", rank / "sidecar.json",
        run / "reduced" / "reduction.json", run / "reduced" / "manifest.json",
        rank / "checkpoints" / "a-00000000.ckpt", rank / "checkpoints" / "a-00000000.lock",
        rank / "lock", rank / "compact.lock", rank / f"{9:020d}.elog", run / "names.json",
    ):  # fmt: skip
        put(what, path, place)
    log = eventlog.open_log(run)
    assert [event.step for event in log.events()] == [1]
    assert log.summary().events == 1
    assert log.status() == "killed"
    assert choose_run(run.parent, "allow", "named")[1] is False
    assert kept_terms(run) == (DEADLINES, RETRY)
    assert read_status(run, 0) is None
    assert list_checkpoints(rank) == []
    assert lock_is_held(rank / "lock") is False
    assert Names(path=run / "names.json").originals() == {}
    with pytest.raises(LogError):
        read_plan(run)
    with pytest.raises(EventlogError):
        read_order(run)
    with pytest.raises(OSError, match=r".*"):
        FileLock(rank / "lock").acquire()
    with pytest.raises(OSError, match=r".*"):
        CheckpointFile(rank / "checkpoints" / "a-00000000.ckpt")
    assert CliRunner().invoke(app, ["info", str(run)]).exit_code in (0, 1)
    assert CliRunner().invoke(app, ["verify", str(run)]).exit_code == 0


@special
def test_a_segment_that_is_no_file_is_no_segment(place: Place, what: str) -> None:
    """A run that has nothing else has no log."""
    put(what, place.run / "rank-0" / f"{0:020d}.elog", place)
    with pytest.raises(NotALogError):
        eventlog.open_log(place.run)


@special
def test_a_blob_that_is_no_file_of_the_run_is_not_read(place: Place, what: str) -> None:
    """By a sink, a copy or a check: a link could lead to any file of the reader's."""
    put(what, place.run / "blobs" / DIGEST, place)
    event = FigureEvent(step=1, tag="f", blob=BlobRef(DIGEST, len(SECRET), "image/png"))
    write_log(place.run, [event])
    with pytest.raises(ValueError, match="not a regular file"):
        RunInfo(run_id="r", run_dir=place.run).blob_path(DIGEST)
    sinks = {"copy": {"sink": "log"}, "uploads": Uploads(place.copies)}
    report = eventlog.replay(place.run, sinks, dir=place.copies / "to")
    assert report.complete
    assert report.sinks["copy"].unshown == {"file that is no blob of the run": 1}
    assert report.sinks["uploads"].unshown == {"file that is missing or damaged": 1}
    assert CliRunner().invoke(app, ["verify", str(place.run)]).exit_code == 1


def test_the_folder_of_blobs_may_not_be_a_link(place: Place) -> None:
    """But for what is reduced over ranks, which has its run's."""
    named = place.outside / DIGEST
    named.write_bytes(SECRET)
    place.remember()
    (place.run / "blobs").symlink_to(place.outside)
    with pytest.raises(ValueError, match="a link"):
        blob_file(place.run, DIGEST)
    with pytest.raises(OSError, match="a link"):
        BlobStore(place.run).put(b"x", "text/plain")
    (place.run / "blobs").unlink()
    digest = BlobStore(place.run).put(b"x", "text/plain").sha256
    reduced = place.run / "reduced"
    reduced.mkdir()
    (reduced / "blobs").symlink_to(Path("..") / "blobs")
    assert blob_file(reduced, digest).read_bytes() == b"x"


def test_a_blob_that_is_not_what_its_name_says_is_not_copied(place: Place) -> None:
    """A copy of a log has the run's files, or none."""
    (place.run / "blobs").mkdir()
    (place.run / "blobs" / DIGEST).write_bytes(PNG)
    good = BlobStore(place.run).put(PNG, "image/png")
    blobs = [BlobRef(DIGEST, len(PNG), "image/png"), good]
    write_log(place.run, [FigureEvent(step=1, tag="f", blob=blob) for blob in blobs])
    eventlog.replay(place.run, {"copy": {"sink": "log"}}, dir=place.copies)
    copied = sorted(path.name for path in (place.copies / "copy" / "blobs").iterdir())
    assert copied == [good.sha256]


def test_names_in_a_log_lead_nowhere_else(place: Place) -> None:
    """A log of hostile names everywhere, into a copy, a tracker and TensorBoard's files, and read
    by every command."""
    write_log(place.run, hostile_events(place.outside), run_id="../../evil", project="../../evil")
    (place.run / "checked").mkdir()
    sinks = {
        "copy": {"sink": "log"}, "uploads": Uploads(place.copies), "tensorboard": {},
        "by_name": {"sink": "tensorboard", "dir": str(place.copies / "{project}" / "{run_id}")},
        "../../evil": {"sink": "log"},
    }  # fmt: skip
    report = eventlog.replay(place.run, sinks, dir=place.copies / "to")
    assert {alias: s.state for alias, s in report.sinks.items()} == dict.fromkeys(sinks, "closed")
    assert report.complete
    run = str(place.run)
    for command in (
        ["info", run], ["verify", run], ["ls", run], ["cat", run],
        ["export", run, "-o", str(place.copies / "x.csv")], ["replay", run, "--sink", "log"],
    ):  # fmt: skip
        result = CliRunner().invoke(app, command)
        assert result.exit_code in (0, 1), (command, result.output, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit)


def test_dvclives_files_stay_in_their_folder(place: Place) -> None:
    """Tags, names and keys of a hostile log make names of files there."""
    pytest.importorskip("eventlog_dvclive")
    write_log(place.run, hostile_events(place.outside))
    sinks = {"dvclive": {"isolate": False, "dir": str(place.copies / "{project}" / "{name}")}}
    report = eventlog.replay(place.run, sinks, dir=place.copies / "to")
    assert report.sinks["dvclive"].delivered > 100


def test_a_replay_uploads_no_file_that_the_log_only_names(place: Place) -> None:
    """Unless its user says so: a log may name any file of whoever replays it."""
    inside = place.run / "checkpoint"
    inside.write_bytes(b"weights")
    folder = place.run / "folder"
    folder.mkdir()
    (folder / "in").symlink_to(place.outside / "secret")
    paths = [place.outside / "secret", place.outside, inside, folder, place.run / ".." / ".."]
    events: list[Event] = [ArtifactEvent(name=str(n), path=str(p)) for n, p in enumerate(paths)]
    write_log(place.run, events)
    report = eventlog.replay(place.run, {"uploads": Uploads(place.copies)}, dir=place.run / "a")
    why = "artifact outside of the run's directory: only its path"
    assert report.sinks["uploads"].unshown == {why: 4}
    assert [path.read_bytes() for path in place.copies.iterdir()] == [b"weights"]
    open_to_it = place.base / "open"
    open_to_it.mkdir()
    eventlog.replay(
        place.run, {"uploads": Uploads(open_to_it)}, dir=place.run / "b", outside_files=True
    )
    assert holds(open_to_it, SECRET)
    (place.run / "folder" / "in").unlink()
    for path in open_to_it.iterdir():
        path.unlink()
    open_to_it.rmdir()


def test_mlflow_is_sent_no_file_that_the_log_only_names(place: Place) -> None:
    """With the real SDK and a real store."""
    pytest.importorskip("eventlog_mlflow")
    (place.run / "weights").write_bytes(b"weights of the run")
    events: list[Event] = [
        ArtifactEvent(name="mine", path=str(place.run / "weights")),
        ArtifactEvent(name="yours", path=str(place.outside / "secret")),
        *hostile_events(place.outside),
    ]
    write_log(place.run, events)
    uri = f"sqlite:///{place.copies}/mlflow.db"
    sink = {"mlflow": {"isolate": False, "tracking_uri": uri}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        patch.chdir(place.copies)
        report = eventlog.replay(place.run, sink, dir=place.copies / "to")
    assert report.sinks["mlflow"].delivered > 100
    assert holds(place.copies, b"weights of the run")


def test_an_artifact_that_may_not_be_looked_at_holds_up_no_tracker(place: Place) -> None:
    """A path that is too long, has a NUL or is a pipe is a file that is not there."""
    fifo = place.run / "fifo"
    os.mkfifo(fifo)
    paths = ["x" * 5000, "a\0b", str(fifo), "/dev/zero", "/proc/1/root/x/y"]
    write_log(place.run, [ArtifactEvent(name=str(n), path=p) for n, p in enumerate(paths)])
    report = eventlog.replay(
        place.run, {"uploads": Uploads(place.copies)}, dir=place.copies / "to", outside_files=True
    )
    assert report.complete
    assert report.sinks["uploads"].unshown == {"artifact that is not there any more": 5}
    for path in place.copies.iterdir():
        assert path.name == "to"


@pytest.mark.parametrize("where", ["replays", "rank-0/checkpoints", "dead", "copy", "rank-1"])
def test_a_folder_in_a_run_that_is_a_link_is_not_written_to(place: Place, where: str) -> None:
    """By a replay, by what delivers the rest, and by a run that goes on there."""
    write_log(place.run, [StepEvent(step=1)])
    (place.run / "sinks.json").write_text(json.dumps({"copy": {"name": "log"}}))
    put("a link to a folder", place.run / where, place)
    for command in (
        ["replay", str(place.run), "--sink", "log"],
        ["replay", "--pending", str(place.run), "--patience", "1"],
        ["info", str(place.run)],
    ):
        result = CliRunner().invoke(app, command)
        assert result.exception is None or isinstance(result.exception, SystemExit), command
        assert sorted(path.name for path in place.outside.iterdir()) == ["secret"], command
    with pytest.raises(OSError, match="a link"):
        own_directory(place.run, *where.split("/"))


def test_a_checkpoint_that_is_a_link_is_not_written_through(place: Place) -> None:
    """It would overwrite the beginning of any file of the user's."""
    write_log(place.run, [StepEvent(step=1)])
    (place.run / "sinks.json").write_text(json.dumps({"copy": {"name": "log"}}))
    CliRunner().invoke(app, ["replay", "--pending", str(place.run)])
    (path,) = (place.run / "rank-0" / "checkpoints").glob("*.ckpt")
    path.unlink()
    path.symlink_to(place.outside / "secret")
    CliRunner().invoke(app, ["replay", "--pending", str(place.run), "--patience", "1"])
    assert path.is_symlink()


def test_a_file_is_replaced_by_way_of_a_name_that_nobody_can_guess(place: Place) -> None:
    """A link that waits under the temporary name would be written through; a link under the
    name itself is replaced."""
    for name in (f".x.json.{os.getpid()}", ".x.json.1", "x.json"):
        put("a link", place.run / name, place)
    replace_file(place.run / "x.json", "mine")
    assert (place.run / "x.json").read_text() == "mine"
    assert not (place.run / "x.json").is_symlink()
    with pytest.raises(OSError, match=r".*"):
        replace_file(place.run / "nowhere" / "x", b"")
    assert not list(place.run.glob(".x.json.*-*"))


@pytest.mark.parametrize("name", names(Path("/tmp/outside")))  # noqa: S108 - never made
def test_the_record_of_a_job_names_a_run_below_its_project(tmp_path: Path, name: str) -> None:
    """Whoever can write there cannot have a rank record elsewhere."""
    meeting = Meeting(tmp_path, Job("job"), "k", 1)
    record = JobRecord(run_id=name, attempt=1, nonce="n", published=1e18)
    (tmp_path / ".jobs").mkdir()
    meeting._path.write_bytes(msgspec.json.encode(record))
    found = meeting.look_anyway()
    assert found is None or (tmp_path / found.run_id).parent == tmp_path


@pytest.mark.parametrize("name", ["rank-007", "rank-٣", "rank--1", "rank-0\n", "rank-" + "9" * 200])
def test_what_only_resembles_a_ranks_folder_is_none(place: Place, name: str) -> None:
    """A number has one way to be written."""
    write_log(place.run, [StepEvent(step=1)])
    (place.run / "rank-0").rename(place.run / name)
    with pytest.raises(NotALogError):
        eventlog.open_log(place.run)


def test_a_large_manifest_is_not_read(place: Place) -> None:
    """16 MiB are enough for what people write there; a hole of 1 TB takes no memory."""
    write_log(place.run, [StepEvent(step=1)])
    for name in ("manifest.json", "sinks.json", "delivery.json"):
        with (place.run / name).open("wb") as file:
            file.truncate(2**40)
    with pytest.raises(LogError, match="larger than"):
        read_plan(place.run)
    assert kept_terms(place.run) == (DEADLINES, RETRY)
    assert choose_run(place.run.parent, "allow", "n")[1] is False
    for name in ("manifest.json", "sinks.json", "delivery.json"):
        (place.run / name).unlink()


CODE = """
import pathlib
pathlib.Path(r"{mark}").write_text("executed")
from eventlog.sinks.base import Sink
class Evil(Sink):
    name = "evil"
    def write(self, batch): pass
"""


def test_a_list_of_sinks_names_no_code(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is not installed as a sink is imported only if whoever delivers says so."""
    monkeypatch.delenv("EVENTLOG_ALLOW", raising=False)
    mark = place.copies / "mark"
    (place.copies / "evil_code.py").write_text(CODE.format(mark=mark))
    monkeypatch.syspath_prepend(place.copies)
    write_log(place.run, [StepEvent(step=1)])
    (place.run / "sinks.json").write_text(json.dumps({"x": {"name": "evil_code:Evil"}}))
    taken = anyio.run(deliver_plan, eventlog.open_log(place.run))
    assert taken["x"].state == "failed"
    result = CliRunner().invoke(app, ["replay", "--pending", str(place.run)])
    assert result.exit_code == 1
    assert "--allow evil_code:Evil" in result.stderr
    command = [sys.executable, "-m", "eventlog.sidecar", str(place.run)]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=50,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "--allow evil_code:Evil" in done.stderr
    assert "evil_code" not in sys.modules
    assert not mark.exists()
    allowed = ["replay", "--pending", str(place.run), "--allow", "evil_code:Evil"]
    assert CliRunner().invoke(app, allowed).exit_code == 0
    assert mark.exists()
