"""Running the programs of a row, each in a process of its own, once the machine is quiet."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.report import FIGURES_VARIABLE, HIGHEST_LOAD, Figure
from benchmarks.row_results import RowResult
from benchmarks.rows import Program, Row
from benchmarks.site import ROOT

LONGEST_WAIT_S = 300.0
_POLL_INTERVAL_S = 2.0
_SHOWN_CHARACTERS = 3_000
_SETTINGS = "settings: "


class BusyMachineError(Exception):
    """The load stayed too high."""


class ProgramFailedError(Exception):
    """A program of a row failed."""


def await_quiet(
    load: Callable[[], float] | None = None, longest_s: float = LONGEST_WAIT_S, interval_s: float = _POLL_INTERVAL_S
) -> None:
    """Wait until the load average of the last minute is low enough.

    Args:
        load: returns the load; None reads the machine's.

    Raises:
        BusyMachineError: it did not become so low in time.
    """
    read = load or (lambda: os.getloadavg()[0])
    give_up_s = time.monotonic() + longest_s
    while (now := read()) > HIGHEST_LOAD:
        if time.monotonic() >= give_up_s:
            raise BusyMachineError(
                f"The load average is {now:.2f} after {longest_s:.0f} s of waiting; figures count below "
                f"{HIGHEST_LOAD}. End what else runs on this machine, or give --any-load."
            )
        time.sleep(interval_s)


def run_row(row: Row, folder: Path, more_arguments: Sequence[str] = ()) -> RowResult:
    """Run all programs of a row.

    Args:
        folder: for the output of the programs and their figures; it exists.
        more_arguments: of each program, after those of the row.

    Raises:
        ProgramFailedError: one failed.
    """
    output, figures_file = folder / f"{row.name}.log", folder / f"{row.name}.figures"
    output.unlink(missing_ok=True)
    figures_file.unlink(missing_ok=True)
    for program in row.programs:
        for _ in range(program.starts):
            _run(row, program, output, figures_file, more_arguments)
    figures = [Figure(**json.loads(line)) for line in figures_file.read_text(encoding="utf-8").splitlines()]
    figures_file.unlink()
    return RowResult.of(row.name, figures, _settings(output))


def _run(row: Row, program: Program, output: Path, figures_file: Path, more_arguments: Sequence[str]) -> None:
    # The runner has waited for a quiet machine; what loads it now is the row itself.
    arguments = [*shlex.split(program.arguments), "--any-load", *more_arguments]
    command = [sys.executable, "-m", f"benchmarks.{program.module}", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), FIGURES_VARIABLE: str(figures_file)}
    with output.open("a", encoding="utf-8") as file:
        file.write(f"$ {program.command}\n")
        file.flush()
        code = subprocess.run(command, cwd=ROOT, env=environment, stdout=file, stderr=file).returncode
    if code:
        end = output.read_text(encoding="utf-8", errors="replace")[-_SHOWN_CHARACTERS:]
        raise ProgramFailedError(f"{row.name}: {program.command} ended with code {code}. The end of {output}:\n{end}")


def _settings(output: Path) -> list[str]:
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    return list(dict.fromkeys(line.removeprefix(_SETTINGS) for line in lines if line.startswith(_SETTINGS)))
