"""The end of a query with `Trigger.AvailableNow`: when nothing of what was there at its start can be acquired."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from sharegroup.client.acquisition import HeldRange
from sharegroup.client.group_member import GroupMember
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log, PartitionOffsets
from sharegroup.spark.worker_end import EndWhenDrained

_ANSWER_TIMEOUT_S = 60.0


class Drain(EndWhenDrained):
    """Knows where the topics ended when the query was started.

    Records that were appended later are given back. A member cannot ask for a partition alone, so the query ends, too,
    when as many acquisitions as there are partitions, one after the other, had only such records: each answer begins
    with another partition.

    Args:
        log: the record log.
        topics: the topics of the query; one that is missing has nothing.
    """

    def __init__(self, log: Log, topics: Iterable[str]) -> None:
        super().__init__(threading.Event(), _ANSWER_TIMEOUT_S)
        self._end_offsets = {
            (topic, partition): found.end_offset
            for topic in topics
            for partition, found in _offsets(log, topic).items()
        }
        self._late_count = 0

    def parted(self, ranges: Iterable[HeldRange]) -> tuple[tuple[HeldRange, ...], tuple[HeldRange, ...]]:
        """What the query is to have of an acquisition, and what came too late."""
        wanted: list[HeldRange] = []
        late: list[HeldRange] = []
        for held in ranges:
            end = self._end_offsets.get((held.topic, held.partition), 0)
            if held.first_offset < end:
                wanted.append(replace(held, last_offset=min(held.last_offset, end - 1)))
            if held.last_offset >= end:
                late.append(replace(held, first_offset=max(held.first_offset, end)))
        self._late_count = 0 if wanted else self._late_count + 1
        return tuple(wanted), tuple(late)

    def begin(self, member: GroupMember) -> None:
        """Count empty answers from now on: those before were to fetches that only carried acknowledgements."""
        super().is_reached(member, is_busy=True)

    def is_reached(self, member: GroupMember, is_busy: bool = False) -> bool:
        """Whether the query shall end now; raises `RequestTimedOutError` when no processor answered in time."""
        return self._late_count > len(self._end_offsets) or super().is_reached(member, is_busy)


def _offsets(log: Log, topic: str) -> dict[int, PartitionOffsets]:
    try:
        return log.offsets(topic)
    except UnknownTopicError:
        return {}
