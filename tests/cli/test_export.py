"""A run's values as a table in a file, and as columns."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, open_log
from eventlog import _export as tables
from eventlog.cli import table_files
from eventlog.events import Event, StepEvent

from .conftest import Cli, MakeRun, damage, program, segment_of


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Read a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def wide_rows(path: Path) -> list[tuple[Any, ...]]:
    """Read the steps and losses of a wide JSONL file."""
    return [(row["step"], row["loss"]) for row in rows_of(path)]


@pytest.fixture
def rewound(tmp_path: Path) -> Path:
    """Return a run that went back from step 10 to 5, and to 7 then."""
    with Run("p", dir=tmp_path / "runs") as run:
        for value in range(10):
            run.step(loss=value)
        run.rewind(5)
        run.step(loss=-5)
        run.step(loss=-6)
    assert run.dir is not None
    return run.dir


def test_each_value_is_a_row(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """With its place, as a number or as a text; what has no values is left out."""
    out = tmp_path / "out.jsonl"
    result = cli("export", run_dir, "-o", out)
    assert result.exit_code == 0, result.stderr
    rows = rows_of(out)
    assert len(rows) == 2 * 40 + 4 + 1 + 3
    assert result.stdout.startswith(f"{out}: {len(rows)} rows, ")
    assert list(rows[0]) == list(tables.LONG)
    first = rows[0]
    assert first["wall"] > 0
    assert (first["seq"], first["step"], first["axis"], first["type"]) == (1, 0, "step", "step")
    assert (first["key"], first["value"], first["text"]) == ("loss", 1.0, None)
    (word,) = [row for row in rows if row["key"] == "word"]
    assert (word["value"], word["text"]) == (None, "Größe")
    odd = {row["key"]: row["value"] for row in rows if row["key"] in ("odd", "big")}
    assert math.isnan(odd["odd"])
    assert odd["big"] == -math.inf


def test_a_csv_has_a_heading(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """NaN is nan, what is not there is empty; pandas reads both."""
    out = tmp_path / "out.csv"
    assert cli("export", run_dir, "-o", out, "--key", "odd", "--key", "w*").exit_code == 0
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["key"], r["value"], r["text"]) for r in rows] == [
        ("odd", "nan", ""),
        ("word", "", "Größe"),
    ]
    assert list(rows[0]) == list(tables.LONG)


def test_parquet_has_types_and_row_groups(
    cli: Cli, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN is NaN there, and no null; each part of the table is a row group."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "CHUNK", 50)
    out = tmp_path / "out.parquet"
    assert cli("export", run_dir, "-o", out).exit_code == 0
    file = parquet.ParquetFile(out)
    assert file.metadata.num_row_groups == 2
    table = file.read()
    assert str(table.schema.field("value").type) == "double"
    assert str(table.schema.field("step").type) == "int64"
    rows = {row["key"]: row for row in table.to_pylist()}
    assert math.isnan(rows["odd"]["value"])
    assert rows["word"]["value"] is None
    assert rows["word"]["text"] == "Größe"
    assert len(table) == 88


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_all_formats_hold_the_same(ending: str, cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """What pandas reads of a wide table is what `frame` returns."""
    pandas = pytest.importorskip("pandas")
    out = tmp_path / f"out.{ending}"
    assert cli("export", run_dir, "-o", out, "--wide").exit_code == 0
    read = {"jsonl": lambda p: pandas.read_json(p, lines=True), "csv": pandas.read_csv,
            "parquet": pandas.read_parquet}  # fmt: skip
    found = read[ending](out)
    frame = pandas.DataFrame(open_log(run_dir).frame(wide=True))
    pandas.testing.assert_frame_equal(found, frame, check_dtype=False)
    assert len(frame) == 41


def test_a_step_is_a_row_with_wide(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """All that was logged at it, by whichever call, in a column a key."""
    out = tmp_path / "out.jsonl"
    assert cli("export", run_dir, "-o", out, "--wide").exit_code == 0
    rows = rows_of(out)
    assert [row["step"] for row in rows] == list(range(41))
    keys = ["acc", "big", "loss", "odd", "sparsity", "val/loss", "word"]
    assert list(rows[0]) == [*tables.PLACE, *keys]
    assert rows[10]["val/loss"] == 0.2
    assert rows[10]["loss"] == 1 / 11
    assert rows[21]["sparsity"] == 0.5
    assert rows[40]["word"] == "Größe"
    assert rows[40]["loss"] is None


def test_the_latest_attempt_counts(cli: Cli, rewound: Path, tmp_path: Path) -> None:
    """Or all of them, in the order of the log."""
    out = tmp_path / "out.jsonl"
    assert cli("export", rewound, "-o", out, "--wide").exit_code == 0
    assert sorted(wide_rows(out)) == [*enumerate([0, 1, 2, 3, 4, -5, -6])]
    assert cli("export", rewound, "-o", out, "--wide", "--all-attempts").exit_code == 0
    assert wide_rows(out) == [*enumerate(range(10)), (5, -5), (6, -6)]
    frame = open_log(rewound).frame(wide=True)
    assert frame["step"] == list(range(7))
    assert frame["loss"] == [0, 1, 2, 3, 4, -5, -6]
    assert len(open_log(rewound).frame(latest=False)["value"]) == 12


def test_what_is_exported_can_be_chosen(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """By type, name and cadence."""
    out = tmp_path / "out.jsonl"
    assert cli("export", run_dir, "-o", out, "--type", "epoch").exit_code == 0
    assert {row["key"] for row in rows_of(out)} == {"val/loss"}
    assert cli("export", run_dir, "-o", out, "--key", "loss", "--every", "20 steps").exit_code == 0
    assert [row["step"] for row in rows_of(out)] == [0, 20, 39]
    result = cli("export", run_dir, "-o", out, "--key", "acc", "--every", "20 steps",
                 "--reduce", "max", "--wide")  # fmt: skip
    assert result.exit_code == 0
    assert len(rows_of(out)) == 3


def test_an_axis_of_its_own_has_rows_of_its_own(tmp_path: Path) -> None:
    """Step 10 of validation is not step 10 of training."""
    with Run("p", dir=tmp_path) as run:
        for i in range(3):
            run.step(loss=i)
            run.log(loss=-i, step=10 * i, axis="val_step")
    assert run.dir is not None
    frame = open_log(run.dir).frame(wide=True)
    assert [*zip(frame["axis"], frame["step"], frame["loss"], strict=True)] == [
        ("step", 0, 0), ("step", 1, 1), ("step", 2, 2),
        ("val_step", 0, 0), ("val_step", 10, -1), ("val_step", 20, -2),
    ]  # fmt: skip


def test_a_key_may_be_called_as_a_column(tmp_path: Path) -> None:
    """The column of its values has another name then."""
    with Run("p", dir=tmp_path) as run:
        run.step({"wall": 3.0, "values/wall": 4.0})
    assert run.dir is not None
    frame = open_log(run.dir).frame(wide=True)
    assert frame["wall"][0] > 1e18
    assert frame["values/wall"] == [4.0]
    assert frame["values/values/wall"] == [3.0]


def test_a_key_that_was_ever_a_text_is_text(tmp_path: Path) -> None:
    """A column has one type."""
    with Run("p", dir=tmp_path) as run:
        run.step(state=1)
        run.step(state="good")
        run.text("notes", "**bold**")
    assert run.dir is not None
    frame = open_log(run.dir).frame(wide=True)
    assert frame["state"] == ["1", "good", None]
    assert frame["notes"] == [None, None, "**bold**"]
    assert open_log(run.dir).frame(keys=["notes"])["text"] == ["**bold**"]
    assert open_log(run.dir).frame(keys=["state"])["key"] == ["state", "state"]


def test_columns_go_into_any_frame(run_dir: Path) -> None:
    """Pandas, polars and pyarrow take them as they are."""
    log = open_log(run_dir)
    pandas = pytest.importorskip("pandas")
    assert len(pandas.DataFrame(log.frame(types=["step"]))) == 83
    pyarrow = pytest.importorskip("pyarrow")
    assert pyarrow.table(log.frame(wide=True)).num_rows == 41
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(log.frame(wide=True)).shape[0] == 41


def test_an_empty_log_is_an_empty_table(cli: Cli, tmp_path: Path) -> None:
    """With the columns that it would have."""
    with Run("p", dir=tmp_path / "runs") as run:
        pass
    for wide, columns in (((), tables.LONG), (("--wide",), tables.PLACE)):
        assert cli("export", run.dir, "-o", tmp_path / "x.csv", *wide).exit_code == 0
        assert (tmp_path / "x.csv").read_text() == ",".join(columns) + "\n"
    assert run.dir is not None
    assert set(map(tuple, open_log(run.dir).frame().values())) == {()}


def _late(n: int, late: int) -> list[Event]:
    events: list[Event] = [StepEvent(step=i, values={"loss": float(i)}) for i in range(n)]
    return [*events, StepEvent(step=n - late, values={"val": 1.0})]


def test_values_that_come_late_find_their_row() -> None:
    """As long as not too many steps have begun since."""
    for late, rows in ((1, 6000), (4000, 6000), (5000, 6001)):
        events = _late(6000, late)
        columns = tables.wide_keys(events)
        found = list(tables.wide_chunks(events, columns))
        assert sum(len(chunk["step"]) for chunk in found) == rows
    assert found[0]["step"][:3] == [0, 1, 2]


def test_memory_does_not_grow_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are handed out a part at a time, while events are still read."""
    monkeypatch.setattr(tables, "CHUNK", 1000)
    read = 0

    def events() -> Any:
        nonlocal read
        for i in range(20_000):
            read += 1
            yield StepEvent(step=i, values={"loss": 0.5})

    chunks = tables.long_chunks(events())
    assert len(next(chunks)["key"]) == 1000
    assert read <= 1001
    assert sum(len(chunk["key"]) for chunk in chunks) == 19_000


def test_a_format_that_is_not_known_is_wrong_usage(cli: Cli, run_dir: Path) -> None:
    """The error has those that are."""
    result = cli("export", run_dir, "-o", "out.xlsx")
    assert result.exit_code == 2
    assert "-o must end in .jsonl, .csv, .parquet, not 'out.xlsx'" in result.stderr


def test_a_missing_pyarrow_names_the_install_command(
    cli: Cli, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no file is left."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = cli("export", run_dir, "-o", tmp_path / "out.parquet")
    assert result.exit_code == 2
    assert 'pip install "eventlog-bus[parquet]"' in result.stderr
    assert not [path for path in tmp_path.iterdir() if "parquet" in path.name]


def test_a_file_is_whole_or_not_there(
    cli: Cli, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there stays until the new one is complete."""
    out = tmp_path / "out.csv"
    out.write_text("as it was")

    def fails(self: object, columns: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(table_files._Csv, "write", fails)
    result = cli("export", run_dir, "-o", out)
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert out.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir() if "csv" in path.name] == ["out.csv"]


def test_a_damaged_log_is_1(cli: Cli, make_run: MakeRun, tmp_path: Path) -> None:
    """What can be read is exported; the exit code says that it was not all."""
    run_dir = make_run(steps=5000)
    damage(segment_of(run_dir), 0.3)
    result = cli("export", run_dir, "-o", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "rows" in result.stdout
    assert "see: eventlog verify" in result.stderr


def test_no_pyarrow_is_needed_for_the_others(run_dir: Path, tmp_path: Path) -> None:
    """It is not even imported."""
    code = program("export", run_dir, "-o", tmp_path / "out.csv").returncode
    assert code == 0
