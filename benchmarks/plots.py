"""Plots of rows as SVG: a panel for each unit, a bar for each figure with a whisker from its lowest to its highest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.row_results import Measured, RowResult

_WIDTH_INCHES = 9.0
_BAR_INCHES = 0.28
_PANEL_INCHES = 0.8
_OURS, _PEER, _TARGET = "#3b6fb6", "#b8b8b8", "#c03030"


def draw(result: RowResult, path: Path) -> None:
    """Write the plot of a row; the same result gives the same bytes."""
    # Only pages with results need it, and it takes half a second to import.
    import matplotlib
    from matplotlib.figure import Figure

    panels: dict[str, list[Measured]] = {}
    for measured in result.figures:
        panels.setdefault(measured.median.unit, []).append(measured)
    heights = [_PANEL_INCHES + _BAR_INCHES * sum(_bar_count(each) for each in of_unit) for of_unit in panels.values()]
    with matplotlib.rc_context({"svg.hashsalt": result.row, "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
        for (unit, of_unit), axis in zip(panels.items(), axes[:, 0], strict=True):
            bars = list(_bars(of_unit))
            rows = range(len(bars))
            values = [bar[1] for bar in bars]
            whiskers = [[bar[1] - bar[2] for bar in bars], [bar[3] - bar[1] for bar in bars]]
            colours = [_PEER if bar[0].endswith(" peer") else _OURS for bar in bars]
            axis.barh(rows, values, xerr=whiskers, color=colours, height=0.7, capsize=2)
            axis.set_yticks(rows, [bar[0] for bar in bars])
            axis.invert_yaxis()
            axis.set_xlabel(unit)
            for row, bar in enumerate(bars):
                if bar[4] is not None:
                    axis.plot([bar[4], bar[4]], [row - 0.45, row + 0.45], color=_TARGET, linewidth=2)
        figure.savefig(path, format="svg", metadata={"Date": None})


Bar = tuple[str, float, float, float, float | None]
"""Label, median, lowest, highest, target."""


def _bars(figures: Sequence[Measured]) -> list[Bar]:
    bars: list[Bar] = []
    for measured in figures:
        median = measured.median
        bars.append((median.name, median.value, min(measured.values), max(measured.values), median.target))
        peers = [figure.peer for figure in measured.rounds if figure.peer is not None]
        if median.peer is not None:
            bars.append((f"{median.name} peer", median.peer, min(peers), max(peers), None))
    return bars


def _bar_count(measured: Measured) -> int:
    return 1 if measured.median.peer is None else 2
