"""The offset of a share group's query: the acquisition of a micro-batch, as Spark's offset log stores it.

A share group has no position to resume from. So an offset has the records of its batch, the member that holds them, and
the folder with acknowledgements of single records: a restarted query reads the same batch, and can acknowledge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharegroup.client.held_records import HeldRange
from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.spark.source.folder import AcknowledgementFolder

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class AcquiredOffset:
    """The acquisition of a micro-batch.

    Attributes:
        number: 1 for the query's first batch with records, then one more for each; 0 before the first batch.
        member_id: the member that holds the records; the same for all batches of a checkpoint.
        lock_timeout_ms: duration of the locks from the acquisition, or from the last renewal, on.
        acknowledgement_folder: folder with acknowledgements of single records; empty if the commit accepts all records.
        refused_record_count: records of the query so far whose acknowledgement was refused.
        ranges: the records; their delivery counts include this delivery.
        write: the write for their results; None without a sink.
        given_up: acknowledgements of offsets of the acquisition that have no readable record; they are in its commit.
    """

    number: int = 0
    member_id: str = ""
    lock_timeout_ms: int = 0
    acknowledgement_folder: str = ""
    refused_record_count: int = 0
    ranges: tuple[HeldRange, ...] = ()
    write: HeldWrite | None = None
    given_up: tuple[Acknowledgement, ...] = ()

    @property
    def folder(self) -> AcknowledgementFolder | None:
        """The folder of acknowledgements; None if the commit accepts all records."""
        return AcknowledgementFolder(Path(self.acknowledgement_folder)) if self.acknowledgement_folder else None

    @property
    def stored_given_up(self) -> list[list[Any]]:
        """The acknowledgements as JSON: topic id, partition, first and last offset, number of the type."""
        return [
            [ack.topic_id, ack.partition, ack.first_offset, ack.last_offset, ack.acknowledge_type.value]
            for ack in self.given_up
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for Spark's offset log.

        A range is [topic id, topic, partition, first offset, last offset, delivery count, isolation level].
        """
        return {
            "version": FORMAT_VERSION,
            "number": self.number,
            "member_id": self.member_id,
            "lock_timeout_ms": self.lock_timeout_ms,
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
            "write": None if self.write is None else list(self.write),
            "given_up": self.stored_given_up,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> AcquiredOffset:
        """Return the offset that `to_json` wrote.

        Raises:
            UnsupportedFormatVersionError: a later release, or another source, wrote it.
        """
        values = dict(stored)
        version = values.pop("version", None)
        if version != FORMAT_VERSION:
            raise UnsupportedFormatVersionError(
                f"An offset of the query's checkpoint has the version {version}; this release reads {FORMAT_VERSION}.",
                "Use the release that wrote the checkpoint, or start with a new checkpoint folder.",
            )
        # Earlier releases wrote the end of the locks, which only the process that acquired them can count.
        values.pop("lock_deadline_ms", None)
        write = HeldWrite(*values["write"]) if values.get("write") else None
        given_up = tuple(
            Acknowledgement(topic_id, partition, first, last, AcknowledgeType(kind))
            for topic_id, partition, first, last, kind in values.get("given_up", ())
        )
        ranges = tuple(_range(write, *fields) for fields in values["ranges"])
        return cls(**values | {"ranges": ranges, "write": write, "given_up": given_up})


def _range(
    write: HeldWrite | None,
    topic_id: str,
    topic: str,
    partition: int,
    first_offset: int,
    last_offset: int,
    delivery_count: int,
    isolation_level: str,
) -> HeldRange:
    level = IsolationLevel(isolation_level)
    return HeldRange(topic_id, topic, partition, first_offset, last_offset, delivery_count, level, write)
