"""The ledger of a member, which it writes itself: one JSON object for each poll and each commit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Delivery(NamedTuple):
    """A record that a member got."""

    topic: str
    partition: int
    offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """An acknowledgement of a record by a member, and whether it was confirmed."""

    topic: str
    partition: int
    offset: int
    acknowledge_type: str
    is_confirmed: bool


@dataclass
class Ledger:
    """The work of a member.

    Attributes:
        client_id: its name.
        deliveries: its deliveries, in order.
        acknowledgements: its acknowledgements, in order.
        errors: errors that it survived.
    """

    client_id: str
    deliveries: list[Delivery] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class LedgerWriter:
    """Appends to a ledger's file, so that a SIGKILL loses at most the line at hand."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def delivered(self, deliveries: Iterable[Delivery]) -> None:
        self._write({"deliveries": list(deliveries)})

    def acknowledged(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        self._write({"acknowledgements": list(acknowledgements)})

    def failed(self, error: Exception) -> None:
        self._write({"error": f"{type(error).__name__}: {error}"})

    def _write(self, entry: dict[str, object]) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")


def read_ledger(path: Path) -> Ledger:
    """Return the ledger so far; a line that was cut short by a SIGKILL is left out."""
    ledger = Ledger(path.stem)
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if not line.endswith("\n"):
            continue
        entry = json.loads(line)
        ledger.deliveries += [Delivery(*item) for item in entry.get("deliveries", ())]
        ledger.acknowledgements += [Acknowledgement(*item) for item in entry.get("acknowledgements", ())]
        ledger.errors += [entry["error"]] if "error" in entry else []
    return ledger
