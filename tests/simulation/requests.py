"""Members' requests, as the request log has them: each copy's time, the cuts they may be of, and who took over when."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.group_messages import MemberAlive, ShareGroupHeartbeatRequest
from sharegroup.protocol.internal_messages import MemberEnded
from sharegroup.protocol.messages import Message
from sharegroup.protocol.rows import StateRow
from sharegroup.protocol.share_fetch import FINAL_EPOCH, ShareAcknowledgeRequest, ShareFetchRequest
from tests.simulation.administered import ShareKey

RequestKey = tuple[str, int]
"""Member and correlation id."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A request in the log; a member, or its producer, may append it several times.

    Attributes:
        offset: where it is.
        stamp_ms: its append time, made non-decreasing.
        latest_ms: the latest time that it may have counted from, by what Ticks say.
    """

    offset: int
    stamp_ms: int
    latest_ms: int


@dataclass(slots=True)
class Request:
    """A member's fetch or acknowledgement.

    Attributes:
        partition: request partition.
        copies: where it is in the log.
        is_final: it closes the share session.
        acknowledgements: (topic id, partition, first offset, last offset, type).
        applied: share-partitions whose acknowledgements are in the ledger.
        is_closed: its close is in the ledger.
        refusal_count: responses that refused it, completely or in part, without those that were kept and sent again.
        last_refusal: the last of them that refused it in part.
    """

    group_id: str
    partition: int
    copies: list[Copy]
    is_final: bool
    acknowledgements: list[tuple[str, int, int, int, AcknowledgeType]]
    applied: set[ShareKey] = field(default_factory=set)
    is_closed: bool = False
    refusal_count: int = 0
    last_refusal: dict[str, Any] = field(default_factory=dict)

    def note_refusal(self, body: dict[str, Any]) -> None:
        """Count a response that refused it; one that refused it in part is kept, and comes again for other copies."""
        is_whole = bool(body.get("error_code"))
        self.refusal_count += is_whole or body != self.last_refusal
        if not is_whole:
            self.last_refusal = body

    @property
    def copy_of_response(self) -> Copy:
        """Return the copy that the next response belongs to: what was refused and succeeds later is of a later copy."""
        return self.copies[min(self.refusal_count, len(self.copies) - 1)]


class Requests:
    """All requests of members, and what the log and the table tell of their order and their times."""

    def __init__(self) -> None:
        self._requests: dict[RequestKey, Request] = {}
        self._senders: dict[tuple[int, int], RequestKey] = {}
        self._stamps_ms: dict[int, int] = {}
        self._leads_ms: dict[int, int] = {}
        self._heard: dict[str, list[Copy]] = defaultdict(list)
        """Member → its messages to the leader; a heartbeat that the coordinator refuses does not get there."""
        self._closes: dict[str, list[Copy]] = defaultdict(list)
        """Member → requests that close its share session, each time that they come."""
        self._ended: dict[str, Copy] = {}
        """Member → the report of its helper that its process has ended."""
        self._have_signs: set[str] = set()
        """Members for which another process has given a sign of life."""
        self._announcements: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._cut_ends: dict[tuple[int, int], list[int]] = defaultdict(list)
        """Request partition and time → ends of the cuts; most times have one."""

    def get(self, key: RequestKey) -> Request | None:
        """Return a member's fetch or acknowledgement."""
        return self._requests.get(key)

    def sender(self, partition: int, offset: int) -> RequestKey:
        """Return whose request is at an offset of a request partition."""
        return self._senders.get((partition, offset), ("", 0))

    def add(self, key: RequestKey, group_id: str, body: Message, record: LogRecord) -> None:
        """Note a request when it is appended, each time."""
        stamp_ms = self.stamp_ms(record)
        copy = Copy(record.offset, stamp_ms, stamp_ms + self._leads_ms.get(record.partition, 0))
        self._senders[record.partition, record.offset] = key
        if not isinstance(body, ShareGroupHeartbeatRequest):
            self._heard[key[0]].append(copy)
        if not isinstance(body, ShareFetchRequest | ShareAcknowledgeRequest):
            return
        if body.share_session_epoch == FINAL_EPOCH:
            self._closes[key[0]].append(copy)
        if key in self._requests:
            self._requests[key].copies.append(copy)
            return
        acknowledgements = [
            (topic.topic_id, partition.partition_index, first, last, kind)
            for topic in body.topics
            for partition in topic.partitions
            for acknowledged in partition.acknowledgement_batches
            for first, last, kind in acknowledged.batch.runs()
        ]
        is_final = body.share_session_epoch == FINAL_EPOCH
        self._requests[key] = Request(group_id, record.partition, [copy], is_final, acknowledgements)

    def helped(self, member_id: str, body: MemberAlive | MemberEnded, record: LogRecord) -> None:
        """Note a message of a member's helper when it is appended."""
        stamp_ms = self.stamp_ms(record)
        copy = Copy(record.offset, stamp_ms, stamp_ms + self._leads_ms.get(record.partition, 0))
        if isinstance(body, MemberEnded):
            self._ended[member_id] = copy
        else:
            self._have_signs.add(member_id)
            self._heard[member_id].append(copy)

    def may_have_closed(self, member_id: str, start_ms: int, end_ms: int, end_offset: int) -> bool:
        """Return True if a share session may have been closed between two times, by a message before an offset.

        A late repeat may have opened the session again, and one of a close then closes it for a second time. The end of
        the member's process closes it, too, and for good: its time may be before that of the cut which acquired.
        """
        ended = self._ended.get(member_id)
        if ended is not None and ended.stamp_ms <= end_ms and ended.offset < end_offset:
            return True
        return any(
            copy.latest_ms >= start_ms and copy.stamp_ms <= end_ms and copy.offset < end_offset
            for copy in self._closes[member_id]
        )

    def was_silent(self, member_id: str, silence_ms: int, start_ms: int, end_ms: int) -> bool:
        """Return True if a member with a helper had sent nothing for so long at some time between two times."""
        if member_id not in self._have_signs:
            return False
        since_ms = start_ms
        for copy in self._heard[member_id]:
            if copy.stamp_ms >= end_ms:
                break
            if copy.latest_ms > start_ms and copy.latest_ms - since_ms >= silence_ms:
                return True
            since_ms = copy.stamp_ms
        return end_ms - since_ms >= silence_ms

    def stamp_ms(self, record: LogRecord) -> int:
        """Return the time of a message of the request log, made non-decreasing."""
        stamp_ms = max(record.timestamp_ms, self._stamps_ms.get(record.partition, 0))
        self._stamps_ms[record.partition] = stamp_ms
        return stamp_ms

    def ticked(self, record: LogRecord, time_ms: int) -> None:
        """Note a Tick, which says how far the time of a request partition is ahead of its stamps."""
        self.stamp_ms(record)
        lead_ms = time_ms - record.timestamp_ms
        self._leads_ms[record.partition] = max(self._leads_ms.get(record.partition, 0), lead_ms)

    def announced(self, record: LogRecord, leader_epoch: int) -> None:
        """Note a processor's announcement in a request partition."""
        self.stamp_ms(record)
        self._announcements[record.partition].append((record.offset, leader_epoch))

    def announced_before(self, partition: int, offset: int, leader_epoch: int) -> list[tuple[int, int]]:
        """Return the announcements (offset, epoch) of newer processors before an offset."""
        return [(at, epoch) for at, epoch in self._announcements[partition] if epoch > leader_epoch and at < offset]

    def committed(self, marker: StateRow) -> None:
        """Note the cuts that a marker has."""
        for cut in marker.payload["cuts"]:
            self._cut_ends[cut["partition"], cut["time_ms"]].append(cut["end_offset"])

    def rebuilt(self, partition: int, cut_ms: int, end_offset: int) -> None:
        """Note that a group was rebuilt: its messages are of no cut that the marker has."""
        if (partition, cut_ms) not in self._cut_ends:
            self._cut_ends[partition, cut_ms].append(end_offset)

    def cuts_of(self, partition: int, offset: int, time_ms: int) -> list[int]:
        """Return the ends of the cuts of a time that may have served the fetch at an offset; empty when there is none.

        A fetch that waits is served in a later cut than the one that has it, which may be of the same millisecond.
        """
        ends = self._cut_ends.get((partition, time_ms), [])
        return [end for end in ends if end > offset] or ends[-1:]
