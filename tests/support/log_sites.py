"""Logs and records of the tests that run on each kind of log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from sharegroup.logs.port import Log, NewRecord

STAMPED = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class Site:
    """A log that can be opened several times; topics of other tests may be in it.

    Attributes:
        open: opens it again.
        opened: open for the whole run, where opening takes its time.
    """

    open: Callable[[], Log]
    opened: Log | None = None

    def name(self, stem: str) -> str:
        """A topic name that no other test has."""
        return f"{stem}-{uuid4().hex[:8]}"


def values(*texts: str) -> list[NewRecord]:
    """Return records with these values."""
    return [NewRecord(None, text.encode()) for text in texts]


def read_values(log: Log, topic: str = "events", partition: int = 0) -> list[bytes | None]:
    """Return the values of all records of a partition."""
    offsets = log.offsets(topic)[partition]
    return [record.value for record in log.read(topic, partition, offsets.start_offset, offsets.end_offset)]
