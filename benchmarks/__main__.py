"""Measure the rows of the benchmark and write docs/benchmarks.md from all results.

    python -m benchmarks                   # the rows of `make bench`: up to an hour
    python -m benchmarks --long            # those of `make bench-long`; goes on after the last finished row
    python -m benchmarks --row T4          # one row; repeatable
    python -m benchmarks --write-page      # measure nothing

Before each row it waits until the load average is under 0.3, 5 minutes at most. Each figure prints one line at the end
of its row, `T7.kafka.idle.p50 18.2 ms target 25 met`, the median of the rounds. Results are kept for each row beside
the page (docs/benchmarks/T7.json), the output of the programs in build/benchmarks (T7.log). Rows that were never
measured are named as such in the page.

Exit codes: 0, all rows were measured, whether their targets are met or not; 1, a row failed, or the machine is busy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.page import plot_folder, write_page
from benchmarks.row_results import RowResults
from benchmarks.row_runner import BusyMachineError, ProgramFailedError, await_quiet, run_row
from benchmarks.rows import ROWS, Row, row_of
from benchmarks.site import ROOT

FOLDER = ROOT / "build" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = parser().parse_args(arguments)
    results = RowResults(plot_folder(options.page), options.folder)
    rows = [row_of(name) for name in options.row] or [row for row in ROWS if row.is_long == options.long]
    code = 0 if options.write_page else measure(options, rows, results)
    write_page(options.page, results)
    return code


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    rows = "\n".join(f"  {row.name:<8} {row.title}" for row in ROWS)
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"rows:\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--row", action="append", default=[], choices=[row.name for row in ROWS], metavar="ROW", help="only this row"
    )
    made.add_argument("--long", action="store_true", help="the rows that take hours")
    made.add_argument("--fresh", action="store_true", help="with --long: measure finished rows of the last run, too")
    made.add_argument("--write-page", action="store_true", help="write the page from the results, measure nothing")
    made.add_argument("--any-load", action="store_true", help="measure on a busy machine, too")
    made.add_argument("--output", choices=("text", "json"), default="text", help="form of the figures on stdout")
    made.add_argument("--folder", type=Path, default=FOLDER, help="folder of the output (default: build/benchmarks)")
    made.add_argument("--page", type=Path, default=PAGE, help="document to write (default: docs/benchmarks.md)")
    return made


def measure(options: argparse.Namespace, rows: Sequence[Row], results: RowResults) -> int:
    """Measure the rows, keep each result as soon as it is there, and return the exit code."""
    is_resumable = options.long and not options.row
    if is_resumable and options.fresh:
        results.end_run()
    finished = results.finished_rows() if is_resumable else []
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = False
    with _progress() as progress:
        task = progress.add_task("", total=len(rows), completed=sum(row.name in finished for row in rows))
        for row in rows:
            if row.name in finished:
                continue
            try:
                progress.update(task, description=f"{row.name}: waiting for a quiet machine")
                if not options.any_load:
                    await_quiet()
                progress.update(task, description=f"{row.name}: measuring")
                result = run_row(row, options.folder)
            except BusyMachineError as busy:
                print(f"{row.name}: {busy}", file=sys.stderr)
                return 1
            except ProgramFailedError as failure:
                print(failure, file=sys.stderr)
                failed = True
                continue
            results.write(result)
            if is_resumable:
                results.mark_finished(row.name)
            for measured, line in zip(result.figures, result.lines, strict=True):
                print(json.dumps(asdict(measured.median)) if options.output == "json" else line, flush=True)
            progress.advance(task)
    if is_resumable and not failed:
        results.end_run()
    return int(failed)


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


if __name__ == "__main__":
    sys.exit(main())
