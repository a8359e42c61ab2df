"""The offset of a share group's query: what was acquired for a micro-batch, in Spark's offset log.

A share group has no position to go on from. So an offset says which records its batch consists of, who holds them, and
where acknowledgements of single records are: a query that is started again reads the same batch from it, and can
acknowledge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharegroup.client.acquisition import HeldRange
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import UnsupportedFormatVersionError

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class AcquiredOffset:
    """What a micro-batch consists of.

    Attributes:
        number: 1 for the query's first batch with records, and one more for each; 0 is before it.
        member_id: the member that holds the records; the same for all batches of a checkpoint.
        lock_timeout_ms: how long the locks last from the acquisition, or the last renewal, on.
        lock_deadline_ms: when they end if they are not renewed, epoch ms.
        acknowledgement_folder: where `acknowledge` leaves what is said of single records; "" when the commit accepts
            them all.
        refused_record_count: records of the query so far that were read, but not held long enough to be acknowledged.
        ranges: the records; their delivery counts include this delivery.
    """

    number: int = 0
    member_id: str = ""
    lock_timeout_ms: int = 0
    lock_deadline_ms: int = 0
    acknowledgement_folder: str = ""
    refused_record_count: int = 0
    ranges: tuple[HeldRange, ...] = ()

    @property
    def record_count(self) -> int:
        """How many records it has."""
        return sum(held.record_count for held in self.ranges)

    @property
    def folder(self) -> Path | None:
        """The folder of acknowledgements, if there is one."""
        return Path(self.acknowledgement_folder) if self.acknowledgement_folder else None

    def to_json(self) -> dict[str, Any]:
        """The form in Spark's offset log.

        Ranges are [topic id, topic, partition, first offset, last offset, delivery count, isolation level].
        """
        return {
            "version": FORMAT_VERSION,
            "number": self.number,
            "member_id": self.member_id,
            "lock_timeout_ms": self.lock_timeout_ms,
            "lock_deadline_ms": self.lock_deadline_ms,
            "acknowledgement_folder": self.acknowledgement_folder,
            "refused_record_count": self.refused_record_count,
            "ranges": [
                [
                    r.topic_id,
                    r.topic,
                    r.partition,
                    r.first_offset,
                    r.last_offset,
                    r.delivery_count,
                    r.isolation_level.value,
                ]
                for r in self.ranges
            ],
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> AcquiredOffset:
        """The offset that `to_json` wrote.

        Raises:
            UnsupportedFormatVersionError: a later release, or something else, wrote it.
        """
        values = dict(form)
        version = values.pop("version", None)
        if version != FORMAT_VERSION:
            raise UnsupportedFormatVersionError(
                f"An offset of the query's checkpoint has the version {version}; this release reads {FORMAT_VERSION}.",
                "Use the release that wrote the checkpoint, or start with a new checkpoint folder.",
            )
        return cls(**values | {"ranges": tuple(_range(*found) for found in values["ranges"])})


def _range(
    topic_id: str, topic: str, partition: int, first: int, last: int, delivery_count: int, level: str
) -> HeldRange:
    return HeldRange(topic_id, topic, partition, first, last, delivery_count, IsolationLevel(level))
