"""The document of the benchmark: for each row its settings, figures, peer and plot, from the kept results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.plots import draw
from benchmarks.report import number_text
from benchmarks.row_results import Measured, RowResult, RowResults
from benchmarks.rows import ROWS, Row

NOT_MEASURED = "Not measured."
_HEAD = """\
# Benchmarks

`make bench` measures the rows below that take minutes, `make bench-long` those that take hours, `make bench ROW=T4` one
row; `python -m benchmarks --help` says more. They write this page from their results. Nothing else may run meanwhile:
before each row they wait for a load average under 0.3. A value is the median of the rounds, with the lowest and the
highest beside it. A peer was measured in the same run, on the same cores, and the ratio is the median over the peer's.
"""


def plot_folder(page: Path) -> Path:
    """Return the folder of the document's results and plots: it is beside the document, and has its name."""
    return page.with_suffix("")


def write_page(page: Path, results: RowResults) -> None:
    """Write the document, and the plots of measured rows."""
    by_row = {row.name: results.read(row.name) for row in ROWS}
    plots = plot_folder(page)
    for row in ROWS:
        result = by_row[row.name]
        if result is not None:
            plots.mkdir(parents=True, exist_ok=True)
            draw(result, plots / f"{row.name}.svg")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_text([(row, by_row[row.name]) for row in ROWS], plots.name), encoding="utf-8")


def page_text(rows: list[tuple[Row, RowResult | None]], plots: str) -> str:
    """Return the document.

    Args:
        rows: each row with its result; None is a row that was never measured.
        plots: folder of the plots, as links have it.
    """
    return _HEAD + "".join("\n" + "\n".join(_section(row, result, plots)) + "\n" for row, result in rows)


def _section(row: Row, result: RowResult | None, plots: str) -> Iterator[str]:
    yield f"## {row.name}: {row.title}"
    yield ""
    yield f"Target: {row.target}."
    if row.peer:
        yield f"Peer: {row.peer}."
    yield ""
    if result is None:
        yield NOT_MEASURED
        return
    yield "| figure | unit | min | median | max | rounds | peer | ratio | target | |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for measured in result.figures:
        yield f"| {' | '.join(_cells(measured))} |"
    yield ""
    yield f"![{row.name}]({plots}/{row.name}.svg)"
    yield ""
    yield f"Machine: {result.machine}. Versions: {', '.join(f'{k} {v}' for k, v in result.versions.items())}."
    yield ""
    yield "```"
    for program in row.programs:
        yield program.command
    yield "```"
    for settings in result.settings:
        yield f"- `{settings}`"


def _cells(measured: Measured) -> Iterator[str]:
    figure = measured.median
    yield f"`{figure.name}`"
    yield figure.unit
    yield number_text(min(measured.values))
    yield number_text(figure.value)
    yield number_text(max(measured.values))
    yield str(len(measured.values))
    yield "" if figure.peer is None else number_text(figure.peer)
    yield "" if measured.ratio is None else f"{measured.ratio:.2f}"
    yield "" if figure.target is None else f"{figure.target:g}"
    yield "" if figure.target is None else "met" if figure.is_met else "short"
