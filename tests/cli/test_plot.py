"""Charts in the terminal and in files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eventlog.cli.chart import chart
from eventlog.cli.figure import save_figure
from eventlog.cli.series import Metrics, Series, Update

from .conftest import Cli, MakeRun, at_terminal

PNG = b"\x89PNG\r\n\x1a\n"


def _series(*points: tuple[float, float], key: str = "loss") -> Series:
    series = Series(key, "step")
    for x, y in points:
        series.add(x, y)
    series.settle()
    return series


def test_a_chart_is_drawn_without_a_file(cli: Cli, run_dir: Path) -> None:
    """Each metric under its name, with its last value, and where the model was updated."""
    result = cli("plot", run_dir)
    assert result.exit_code == 0, result.stderr
    for text in ("mnist / baseline", "loss  0.025", "val/loss  0.05", "odd  nan", "1 not finite",
                 "nothing finite to draw", "model updates: prune at 21"):  # fmt: skip
        assert text in result.stdout
    assert any("\u2801" <= char <= "\u28ff" for char in result.stdout)
    assert "word" not in result.stdout


def test_metrics_are_chosen_by_name(cli: Cli, run_dir: Path) -> None:
    """By glob, several times."""
    shown = cli("plot", run_dir, "--key", "val/*", "--key", "acc").stdout
    assert "val/loss  " in shown
    assert "acc  " in shown
    assert "odd" not in shown


def test_nothing_to_plot_is_wrong_usage(cli: Cli, run_dir: Path) -> None:
    """The error says what was looked for."""
    result = cli("plot", run_dir, "--key", "nothing")
    assert result.exit_code == 2
    assert "has no metrics that match nothing on the axis 'step'" in result.stderr


def test_a_file_is_written_in_the_format_of_its_name(
    cli: Cli, run_dir: Path, tmp_path: Path
) -> None:
    """PNG and SVG; its path is what is printed."""
    pytest.importorskip("matplotlib")
    for name, start in (("a.png", PNG), ("a.svg", b"<?xml")):
        result = cli("plot", run_dir, "-o", tmp_path / name)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == f"{tmp_path / name}\n"
        assert (tmp_path / name).read_bytes().startswith(start)


def test_a_file_and_a_chart_can_be_had_together(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """With --terminal."""
    pytest.importorskip("matplotlib")
    shown = cli("plot", run_dir, "-o", tmp_path / "a.png", "--terminal").stdout
    assert shown.startswith(str(tmp_path / "a.png"))
    assert "val/loss  " in shown


@pytest.mark.parametrize("axis", ["step", "epoch", "batch", "wall"])
def test_each_axis_can_be_plotted(axis: str, cli: Cli, run_dir: Path) -> None:
    """The axis is named under the chart."""
    result = cli("plot", run_dir, "--axis", axis, "--key", "loss")
    assert result.exit_code == 0, result.stderr
    assert {"wall": "seconds"}.get(axis, axis) in result.stdout


def test_a_format_that_does_not_exist_is_one_line(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """Matplotlib's own words, exit code 2."""
    pytest.importorskip("matplotlib")
    result = cli("plot", run_dir, "-o", tmp_path / "a.docx")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert cli("plot", run_dir, "-o", tmp_path / "no" / "a.png").exit_code == 2


def test_without_matplotlib_the_error_says_what_to_type(
    cli: Cli, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = cli("plot", run_dir, "-o", tmp_path / "a.png")
    assert result.exit_code == 2
    assert result.stderr == (
        'eventlog: a plot in a file needs matplotlib: pip install "eventlog-bus[plot]"\n'
    )


def test_too_many_metrics_are_cut_with_a_note(cli: Cli, tmp_path: Path) -> None:
    """A model that logs every layer's norm does not fill the screen."""
    from eventlog import Run

    with Run("p", dir=tmp_path) as run:
        for _ in range(2):
            run.step({f"m{i:02}": i for i in range(40)})
    result = cli("plot", run.dir)
    assert result.exit_code == 0
    assert "12 of 40 metrics are drawn; choose others with --key" in result.stderr
    assert "m11 " in result.stdout
    assert "m12 " not in result.stdout


def test_a_terminal_gets_colours_and_its_own_width(make_run: MakeRun) -> None:
    """Two charts side by side in a hundred columns, in colour."""
    code, seen = at_terminal("plot", make_run(), "--key", "loss", "--key", "acc")
    assert code == 0
    assert "\x1b[36m" in seen
    assert any("acc" in line and "loss" in line for line in seen.splitlines())


def test_a_line_is_drawn_where_its_points_are() -> None:
    """From the lower left to the upper right, a dot in each column of dots."""
    lines = chart(_series((0, 0), (7, 7)), [], width=16, rows=2).plain.splitlines()
    assert lines[0] == "loss  7"
    assert lines[1] == "         7 ┤    ⣀⠤⠒⠉"
    assert lines[2] == "         0 ┤⣀⠤⠒⠉    "
    assert lines[4].split() == ["0", "step", "7"]


def test_updates_are_vertical_lines() -> None:
    """Within the span of the metric; others are not drawn."""
    series = _series((0, 0), (10, 0))
    lines = chart(series, [Update(0, "prune"), Update(11, "late")], 16, 2).plain.splitlines()
    assert lines[1].endswith("┤⣅⣀⣀⣀⣀⣀⣀⣀")


@pytest.mark.parametrize(
    "points",
    [
        [(0, 1)],
        [(3, 5), (3, 6)],
        [(0, -1.7e308), (1, 1.7e308)],
        [(0, 5), (1, 5)],
        [(float(i), float(i % 7)) for i in range(10_000)],
    ],
    ids=["one", "one place", "huge", "constant", "many"],
)
def test_odd_series_are_drawn(points: list[tuple[float, float]], tmp_path: Path) -> None:
    """One point, one place, the whole range of floats, no range, far more than can be seen."""
    pytest.importorskip("matplotlib")
    series = _series(*points)
    assert len(chart(series, [], 60, 8).plain.splitlines()) == 11
    if abs(points[0][1]) < 1e300:  # matplotlib's own limits overflow there
        save_figure(Metrics([series], [Update(0, "x")]), tmp_path / "a.png", "t $x_1$")
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)
