"""Whatever is read: a documented exception or a result, never anything else, and never a wait.

The targets are those of `make fuzz`; here hypothesis makes what they are given: any bytes, texts
and JSON of the shapes that the readers know, and logs, whole ones, with some of their bytes
changed.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import eventlog
from eventlog.cli.app import app
from eventlog.events import StepEvent
from eventlog.exceptions import EventlogError
from eventlog.log.seal import compact_log
from eventlog.log.segment_reader import list_segments

from .loading import load_targets

targets = load_targets()
few = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("name", [n for n in targets.TARGETS if n not in ("replay", "compact")])
@few
@given(data=st.binary(max_size=600))
@example(data=b"")
@example(data=b"\xd0\xcb\xd1\xd5\xe1\xddU|V\xc3\xcdC\x99+\x0e\xc5\x1a\xf9\x1f\xfb\x8b\xb4\xdd\xb0")
def test_any_bytes(name: str, data: bytes) -> None:
    """Readers of segments, payloads, checkpoints, manifests, orders, settings, texts."""
    targets.TARGETS[name](data)


@pytest.mark.parametrize("name", ["replay", "compact"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(max_size=300))
@example(
    data=b"\xd0\xcb\xd1\xd5\xe1\xddU|V\xc3\xcdC\x99+\x0e\xc5\x1a\xf9\x1f\xfb\x8b\xb4\xdd\xb0"
    b"\xfb\xcfJ\xb79K"
)  # an EVENTS block without a byte: compaction raised IndexError
def test_logs_that_contradict_themselves_can_be_replayed_and_compacted(
    name: str, data: bytes
) -> None:
    """Every block's checksums hold; what they say is anything."""
    targets.TARGETS[name](data)


@settings(max_examples=300)
@given(
    st.text(st.characters(codec="utf-8") | st.sampled_from("0123456789 .smhe/-"), max_size=40)
    | st.lists(
        st.sampled_from(
            [
                "10",
                "1.5",
                "steps",
                "epoch",
                "or",
                "s",
                "1h30m",
                "pow",
                "every",
                "2",
                "9" * 400,
                "1e999",
                "½",
                "٣",
                "update",
                "-",
                ".",
            ]
        ),
        max_size=7,
    ).map(" ".join)
)
@example("9" * 5000 + " steps")
@example("1e99999999 steps")
@example("0." + "0" * 4000 + "1 epochs")
def test_any_cadence(text: str) -> None:
    """A CadenceError that can be shown, or a cadence that is written as what it means."""
    targets.cadence(text.encode("utf-8", "surrogatepass"))


def json_values() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    return st.recursive(
        plain,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "name",
                        "every",
                        "by_type",
                        "options",
                        "reduce",
                        "types",
                        "keys",
                        "rate",
                        "deadlines",
                        "retry",
                        "open",
                        "first",
                        "most",
                        "sinks",
                        "pid",
                        "state",
                        "run_id",
                        "attempt",
                        "nonce",
                        "world_size",
                        "key",
                        "axis",
                        "kind",
                        "log_frequency",
                        "mode",
                        "frequency_type",
                        "anchor",
                        "x",
                    ]
                )
                | st.text(max_size=4),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    )


DEEP = b"[" * 100_000 + b"]" * 100_000


@few
@given(data=json_values().map(lambda value: json.dumps(value).encode()))
@example(data=DEEP)
@example(data=b'{"a":' * 50_000)
@example(data=b'{"x": {"name": "log", "every": {"by_type": {"step": {"by_type": {}}}}}}')
@example(data=b'{"deadlines": {"open": 1e999}, "retry": {"first": -1}}')
@example(data=b"[" + b"9" * 5000 + b"]")
@example(data=b"\xff\xfe\x00")
@example(data=b'{"run_id": "../../x", "attempt": 1, "nonce": ""}')
def test_any_json_in_a_file_beside_a_log(data: bytes) -> None:
    """Manifest, sinks, terms, report, orders of the reduction, names, a job's record."""
    targets.manifests(data)


@few
@given(
    text=st.lists(
        st.sampled_from(
            [
                "[tool.eventlog]",
                "[tool]",
                "[options.mlflow]",
                "sinks = ",
                "'log'",
                '"all"',
                "[",
                "]",
                "{",
                "}",
                "every = ",
                "'10 steps'",
                "dir = ",
                "= 1",
                "project = 1",
                "\n",
                "a.b.c = ",
                "{x = 1}",
                "reduce = 'mean'",
                "'" * 3,
                "\0",
                "é",
            ]
        ),
        max_size=14,
    ).map(" ".join)
)
@example(text="a = " + "[" * 100_000)
@example(text="[tool.eventlog]\na = " + "{a = " * 20_000)
@example(text="tool = 1")
@example(text="tool = 1 # [tool.eventlog")
@example(text="[tool.eventlog]\nsinks = {x = {sink = 'log', every = 'x'}}")
@example(text="[[tool.eventlog]]\n")
@example(text="tool.eventlog = [tool.eventlog, 1]")
def test_any_settings_file(text: str) -> None:
    """It says what is wrong, with the file's name, or it is taken."""
    targets.settings(text.encode())


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make a run that was rotated and sealed, the same one compacted, and one that was killed."""
    base = tmp_path_factory.mktemp("logs")

    with eventlog.Run("p", dir=base, segment_bytes=2000, sinks={"copy": {"sink": "log"}}) as run:
        for step in range(60):
            run.step(loss=1 / (step + 1))
            if step == 30:
                run.rewind(10)
                run.sync()
            if step % 20 == 0:
                run.sync()
        run.text("t", "ELB1" * 5)
    assert run.dir is not None
    made = {"sealed": run.dir}
    for name in ("compact", "open"):
        made[name] = base / name
        shutil.copytree(run.dir, made[name])
    list(compact_log(made["compact"] / "rank-0"))
    for _, path in list_segments(made["open"] / "rank-0"):
        path.write_bytes(path.read_bytes()[:-150])
    return made


changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "zero", "copy"]),
        st.integers(0, 2**32),
        st.binary(min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=4,
)


def changed(content: bytes, what: str, where: int, data: bytes) -> bytes:
    at = where % max(1, len(content))
    if what == "flip":
        byte = content[at : at + 1] or b"\0"
        return content[:at] + bytes([byte[0] ^ (data[0] or 1)]) + content[at + 1 :]
    if what == "cut":
        return content[:at]
    if what == "insert":
        return content[:at] + data + content[at:]
    if what == "zero":
        return content[:at] + bytes(len(data)) + content[at + len(data) :]
    return content[:at] + content[at // 2 : at] + content[at:]


@pytest.mark.parametrize("which", ["sealed", "compact", "open"])
@few
@given(changes=changes, number=st.integers(0, 5))
def test_a_log_whose_bytes_were_changed(
    logs: dict[str, Path], which: str, changes: list[tuple[str, int, bytes]], number: int
) -> None:
    """With and without an index, rotated, compacted, cut: what is left is read in order, once."""
    with targets.folder() as base:
        run_dir = base / "run"
        shutil.copytree(logs[which], run_dir)
        segments = list_segments(run_dir / "rank-0")
        path = segments[number % len(segments)][1]
        content = path.read_bytes()
        for change in changes:
            content = changed(content, *change)
        path.write_bytes(content)
        targets.read_everything(run_dir)
        try:
            seqs = [event.seq for event in eventlog.open_log(run_dir).events()]
        except EventlogError:
            return
        assert seqs == sorted(set(seqs))


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(changes=changes, which=st.sampled_from(["copy/rank-0", "rank-0/checkpoints"]))
def test_a_replay_of_dead_letters_and_changed_checkpoints(
    logs: dict[str, Path], changes: list[tuple[str, int, bytes]], which: str
) -> None:
    """They are logs and positions like others: the command ends with a documented code."""
    with targets.folder() as base:
        run_dir = base / "run"
        shutil.copytree(logs["sealed"], run_dir)
        shutil.copytree(run_dir / "copy", run_dir / "dead" / "copy")
        for folder in (run_dir / which, run_dir / "dead" / "copy" / "rank-0"):
            for path in folder.iterdir():
                if path.suffix in (".elog", ".ckpt"):
                    content = path.read_bytes()
                    for change in changes:
                        content = changed(content, *change)
                    path.write_bytes(content)
        for command in (["info", run_dir], ["replay", "--pending", run_dir, "--patience", 0]):
            result = CliRunner().invoke(app, [str(part) for part in command])
            assert result.exit_code in (0, 1, 2), result.output
            assert result.exception is None or isinstance(result.exception, SystemExit)


WORDS = [
    "info",
    "cat",
    "ls",
    "tail",
    "verify",
    "export",
    "replay",
    "compact",
    "plot",
    "sinks",
    "RUN",
    "nowhere",
    "--rank",
    "0",
    "-1",
    "99999999999999999999",
    "--steps",
    "1:2",
    ":",
    "2:1",
    "--epochs",
    "nan:inf",
    "--time",
    "2026-01-01:",
    "10000-01-01",
    "--type",
    "step",
    "--keys",
    "*",
    "[",
    "--every",
    "10 steps",
    "9 x or",
    "--reduce",
    "mean",
    "loss=median",
    "--sink",
    "log",
    "nosuch",
    ":",
    "os:",
    "--option",
    "log.dir=copies",
    "log",
    "=",
    "--start",
    "--speed",
    "nan",
    "0",
    "--json",
    "--patience",
    "--dir",
    "copies",
    "-o",
    "x.csv",
    "x.nothing",
    "--latest",
    "--",
    "-h",
    "é",
    "\udcff",
    "",
]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(words=st.lists(st.sampled_from(WORDS), max_size=7))
def test_any_command_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exit code that is documented; an error is a line, and no traceback."""
    monkeypatch.chdir(tmp_path)
    run_dir = tmp_path / "run"
    if not run_dir.exists():
        with eventlog.Run("p", dir=tmp_path / "runs") as run:
            for step in range(3):
                run.step(loss=step)
        assert run.dir is not None
        run.dir.rename(run_dir)
    follows = {"tail", "--follow"} & set(words)
    if follows and "RUN" in words:
        return
    args = [str(run_dir) if word == "RUN" else word for word in words]
    result = CliRunner().invoke(app, args)
    assert result.exit_code in (0, 1, 2), (args, result.output)
    assert result.exception is None or isinstance(result.exception, SystemExit), (args, result)


def test_a_target_that_is_broken_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader that does not get on is the one way to wait for ever: it is looked for."""
    from eventlog.log.source import Block

    class Stuck:
        def __init__(self, directory: Path) -> None: ...

        def read(self, seq: int) -> Block:
            return Block(0, 0, 0, (0, 0), attempt=1, first_time=0, size=0)  # type: ignore[arg-type]

    monkeypatch.setattr(targets, "FileReader", Stuck)
    with targets.folder() as base:
        with eventlog.Run("p", dir=base) as run:
            run.step(loss=1.0)
        read: Callable[[Path], None] = targets.read_everything
        assert run.dir is not None
        with pytest.raises(AssertionError, match="does not get on"):
            read(run.dir)
    assert StepEvent().step is None
