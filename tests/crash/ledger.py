"""What a member did, as it wrote it down itself: one JSON object for each poll and each commit."""

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


class Word(NamedTuple):
    """What a member said of a record, and whether it was told that this took effect."""

    topic: str
    partition: int
    offset: int
    acknowledge_type: str
    is_confirmed: bool


@dataclass
class Ledger:
    """What a member did.

    Attributes:
        client_id: its name.
        deliveries: what it got, in order.
        words: what it said, in order.
        errors: what it met and survived.
    """

    client_id: str
    deliveries: list[Delivery] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class LedgerWriter:
    """Appends to a ledger's file, so that a SIGKILL loses at most the line at hand."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def delivered(self, deliveries: Iterable[Delivery]) -> None:
        self._write({"deliveries": list(deliveries)})

    def said(self, words: Iterable[Word]) -> None:
        self._write({"words": list(words)})

    def met(self, error: Exception) -> None:
        self._write({"error": f"{type(error).__name__}: {error}"})

    def _write(self, entry: dict[str, object]) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")


def read_ledger(path: Path) -> Ledger:
    """The ledger so far; a line that was cut short by a SIGKILL is left out."""
    ledger = Ledger(path.stem)
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if not line.endswith("\n"):
            continue
        entry = json.loads(line)
        ledger.deliveries += [Delivery(*item) for item in entry.get("deliveries", ())]
        ledger.words += [Word(*item) for item in entry.get("words", ())]
        ledger.errors += [entry["error"]] if "error" in entry else []
    return ledger
