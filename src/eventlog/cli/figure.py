"""Plots in a file, by matplotlib: one small panel for each metric."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from eventlog.cli.series import Metrics, Series, Update, envelope
from eventlog.exceptions import EventlogError
from eventlog.sinks.console import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["save_figure"]

_INK, _QUIET, _GRID = "#24292f", "#6e7781", "#e6e8eb"
_LINE, _MARK, _BAD = "#1f6feb", "#bf3989", "#cf222e"
_WIDTH, _HEIGHT = 4.4, 2.6
_PIXELS = 800
_MOST_LABELS = 12


def save_figure(metrics: Metrics, path: Path, title: str) -> None:
    """Draw the metrics into a file, in the format that its name says.

    Raises:
        EventlogError: matplotlib is not installed.
        ValueError: It knows no such format.
        OSError: The file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise EventlogError(
            'a plot in a file needs matplotlib: pip install "eventlog-bus[plot]"'
        ) from None
    count = len(metrics.series)
    across = 1 if count == 1 else 2 if count in (2, 4) else 3
    down = math.ceil(count / across)
    figure = Figure(
        figsize=(_WIDTH * across, _HEIGHT * down + 0.5),
        layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08),
        facecolor="white",
    )
    figure.suptitle(
        title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK, parse_math=False
    )
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, series in zip(panels, metrics.series, strict=False):
        _panel(axes, series, metrics.updates)
    for axes in panels[count:]:
        axes.set_visible(False)
    figure.savefig(path, dpi=150)


def _panel(axes: Axes, series: Series, updates: list[Update]) -> None:
    axes.set_title(
        series.key, loc="left", fontsize=10, fontweight="bold", color=_INK, parse_math=False
    )
    axes.set_title(format_value(series.last), loc="right", fontsize=9, color=_LINE)
    odd = f"   ({len(series.nonfinite):,} not finite)" if series.nonfinite else ""
    axes.set_xlabel(series.axis + odd, fontsize=8, color=_QUIET, labelpad=2, parse_math=False)
    axes.tick_params(labelsize=8, colors=_QUIET, length=0)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
    axes.margins(x=0.01, y=0.08)
    if series.x:
        left, right = series.x[0], series.x[-1]
        x, y = envelope(series.x, series.y, _PIXELS, left, right)
        few = len(x) <= 30
        width = 1.0 if len(x) > 400 else 1.6
        axes.plot(x, y, color=_LINE, linewidth=width, marker="o" if few else "", markersize=3.5)
    else:
        axes.set_yticks([])
        axes.text(
            0.5, 0.5, "nothing finite to draw", transform=axes.transAxes, ha="center",
            fontsize=8, color=_QUIET,
        )  # fmt: skip
    if series.nonfinite:
        axes.plot(
            series.nonfinite, [0.02] * len(series.nonfinite), "|", color=_BAD, markersize=7,
            transform=axes.get_xaxis_transform(), clip_on=False,
        )  # fmt: skip
    _mark_updates(axes, updates, {*series.x[:1], *series.x[-1:]})


def _mark_updates(axes: Axes, updates: list[Update], ends: set[float]) -> None:
    from matplotlib.patheffects import withStroke

    if not ends:
        return
    shown = [u for u in updates if min(ends) <= u.x <= max(ends)]
    for update in shown:
        axes.axvline(update.x, color=_MARK, linewidth=1.0, linestyle=(0, (4, 3)))
    if len(shown) > _MOST_LABELS:
        return
    halo = [withStroke(linewidth=2, foreground="white")]
    for update in shown:
        axes.annotate(
            update.kind, (update.x, 0.98), xycoords=axes.get_xaxis_transform(), xytext=(2, 0),
            textcoords="offset points", rotation=90, ha="left", va="top", fontsize=7, color=_MARK,
            parse_math=False, path_effects=halo,
        )  # fmt: skip
