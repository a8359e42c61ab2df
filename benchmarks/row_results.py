"""The results of rows: the values of each figure in all rounds, kept in one JSON file a row.

They are beside the page, in the repository, so that rows can be measured one by one, and on different machines. A run
of several rows can be resumed: until its last row is finished, the rows that are finished are in a file, too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from benchmarks.report import Figure
from benchmarks.site import BROKER_VERSION

_PACKAGES = ("confluent-kafka", "delta-spark", "deltalake", "pyspark")
_GIBIBYTE = 1024**3


@dataclass(frozen=True)
class Measured:
    """A figure with its values of all rounds."""

    rounds: tuple[Figure, ...]

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The value of each round."""
        return tuple(figure.value for figure in self.rounds)

    @cached_property
    def median(self) -> Figure:
        """The figure with the medians of its value and of its peer's."""
        peers = [figure.peer for figure in self.rounds if figure.peer is not None]
        peer = statistics.median(peers) if peers else None
        return dataclasses.replace(self.rounds[-1], value=statistics.median(self.values), peer=peer)

    @property
    def ratio(self) -> float | None:
        """The median over the peer's; None without a peer."""
        return self.median.value / self.median.peer if self.median.peer else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """The figures of one row, and where they were measured.

    Attributes:
        row: its name.
        figures: the figures in the order of their programs.
        settings: the heads that the programs printed: their settings.
        machine: for people.
        versions: name → version of what was measured and what it was measured with.
    """

    row: str
    figures: tuple[Measured, ...]
    settings: tuple[str, ...]
    machine: str
    versions: Mapping[str, str]

    @classmethod
    def of(cls, row: str, figures: Iterable[Figure], settings: Sequence[str]) -> Self:
        """The result of programs that printed these figures, on this machine."""
        rounds: dict[str, list[Figure]] = {}
        for figure in figures:
            name = f"{row}.{figure.name.partition('.')[2]}"
            rounds.setdefault(name, []).append(dataclasses.replace(figure, name=name))
        measured = tuple(Measured(tuple(of_figure)) for of_figure in rounds.values())
        return cls(row=row, figures=measured, settings=tuple(settings), machine=machine_text(), versions=versions())

    @property
    def lines(self) -> list[str]:
        """A line for each figure: its name, its median, its target."""
        return [str(measured.median) for measured in self.figures]

    def to_json(self) -> str:
        """The result as a file has it."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The result that `to_json` wrote."""
        entry: dict[str, Any] = json.loads(text)
        figures = tuple(
            Measured(tuple(Figure(**figure) for figure in measured["rounds"])) for measured in entry.pop("figures")
        )
        return cls(figures=figures, **{**entry, "settings": tuple(entry["settings"])})


class RowResults:
    """The results in a folder.

    Args:
        folder: where they are; made when something is written.
        run_folder: where an interrupted run has its finished rows; made, too.
    """

    def __init__(self, folder: Path, run_folder: Path) -> None:
        self._folder = folder
        self._run_folder = run_folder
        self._unfinished = run_folder / "unfinished.json"

    def read(self, row: str) -> RowResult | None:
        """Return the result of a row; None when it was never measured."""
        path = self._path(row)
        return RowResult.from_json(path.read_text(encoding="utf-8")) if path.exists() else None

    def write(self, result: RowResult) -> None:
        """Keep a result in the place of an older one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        _replace(self._path(result.row), f"{result.to_json()}\n")

    def finished_rows(self) -> list[str]:
        """Return the rows that the run which was interrupted has finished."""
        return list(json.loads(self._unfinished.read_text())) if self._unfinished.exists() else []

    def mark_finished(self, row: str) -> None:
        """Let the next run resume after this row."""
        self._run_folder.mkdir(parents=True, exist_ok=True)
        _replace(self._unfinished, json.dumps([*self.finished_rows(), row]))

    def end_run(self) -> None:
        """Let the next run begin from the first row."""
        self._unfinished.unlink(missing_ok=True)

    def _path(self, row: str) -> Path:
        return self._folder / f"{row}.json"


def machine_text() -> str:
    """This machine, for people."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIBIBYTE
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, {_processor()}"


def versions() -> dict[str, str]:
    """Versions of what is measured, and of its peers."""
    return {
        "Python": platform.python_version(),
        "Kafka": BROKER_VERSION,
        **{package: version(package) for package in _PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown processor")


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
