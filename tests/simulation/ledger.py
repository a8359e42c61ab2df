"""The ledger: who got what, by requests and answers alone, and whether the state table agrees with the answers.

It knows the protocol and nothing of the engine. Answers are taken publication by publication. Within one, they are
taken in the order in which they were applied: an acknowledgement where its request is in the log, an acquisition at
the end of its cut, which is known by the time from which its locks run. Where the state of a share-partition begins
anew, for an administrator or since its topic is gone, its accounts begin anew.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sharegroup.core.record_state import ACKNOWLEDGE_CAUSE, AcknowledgeType, Cause
from sharegroup.logs.port import LogRecord
from sharegroup.processor.publisher import COMMIT_ID_HEADER
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_fetch import FINAL_EPOCH, ShareAcknowledgeRequest, ShareFetchRequest
from tests.simulation.administered import Administered, Delivery, RecordKey, ShareKey
from tests.simulation.drains import Drains
from tests.simulation.world import START_MS

_FINISHING = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP)
_FETCHES = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
_MEMBER_CAUSES = frozenset({*ACKNOWLEDGE_CAUSE.values(), Cause.SESSION_CLOSE})
_NEVER = 1 << 62

RequestKey = tuple[str, int]
"""Member and correlation id."""
_Late = tuple[RequestKey, "Request", RecordKey, AcknowledgeType]
"""An acknowledgement of a record that the member does not hold."""


@dataclass(slots=True)
class Request:
    """A member's fetch or acknowledgement.

    Attributes:
        group_id: its group.
        partition: request partition.
        offset: where it was appended first.
        stamp_ms: its append time there, made non-decreasing.
        latest_ms: the latest time that it may have counted from, by what Ticks say.
        is_final: it closes the share session.
        acknowledgements: (topic id, partition, first offset, last offset, type).
        is_applied: its acknowledgements are in the ledger, by share-partition.
    """

    group_id: str
    partition: int
    offset: int
    stamp_ms: int
    latest_ms: int
    is_final: bool
    acknowledgements: list[tuple[str, int, int, int, AcknowledgeType]]
    is_closed: bool = False
    applied: set[ShareKey] = field(default_factory=set)


class Ledger:
    """Keeps the accounts of one schedule.

    Args:
        delivery_count_limit: in force at first.
        lock_duration_ms: in force at first.
    """

    def __init__(self, delivery_count_limit: int, lock_duration_ms: int) -> None:
        self.violations: list[str] = []
        self.answer_count = 0
        self._limits = {delivery_count_limit}
        self._lock_durations_ms = {lock_duration_ms}
        self._state_epochs: dict[ShareKey, int] = {}
        self._start_offsets: dict[ShareKey, int] = {}
        self._restarts: list[tuple[int, int, ShareKey, Callable[[], None]]] = []
        """(Commit id, request offset, share-partition, how to take it in) of what an administrator has decided, or of
        states that ended."""
        self._published_commit_id = -1
        self._records: dict[RecordKey, Delivery] = defaultdict(Delivery)
        self.administered = Administered(self._records, self._violated)
        self.drains = Drains()
        self._highest_offsets: dict[ShareKey, int] = {}
        """The highest offset that was ever in flight, or was imported."""
        self._requests: dict[RequestKey, Request] = {}
        self._senders: dict[tuple[int, int], RequestKey] = {}
        self._stamps_ms: dict[int, int] = {}
        self._leads_ms: dict[int, int] = {}
        self._announcements: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._epochs_seen: dict[str, int] = {}
        self._acquired: set[tuple[Any, ...]] = set()
        self._cut_ends: dict[tuple[int, int], list[int]] = defaultdict(list)
        """Request partition and time → ends of the cuts; most times have one."""
        self._succeeded: set[tuple[Any, ...]] = set()
        self._unread: list[dict[str, Any]] = []

    # What happens.

    def requested(self, key: RequestKey, group_id: str, body: Message, record: LogRecord) -> None:
        """Note a request when it is appended, each time."""
        stamp_ms = self._stamp_ms(record)
        latest_ms = stamp_ms + self._leads_ms.get(record.partition, 0)
        self._senders[record.partition, record.offset] = key
        if key in self._requests or not isinstance(body, ShareFetchRequest | ShareAcknowledgeRequest):
            return
        acknowledgements = [
            (topic.topic_id, partition.partition_index, batch.first_offset, batch.last_offset, kind)
            for topic in body.topics
            for partition in topic.partitions
            for batch in partition.acknowledgement_batches
            for kind in batch.acknowledge_types
        ]
        is_final = body.share_session_epoch == FINAL_EPOCH
        self._requests[key] = Request(
            group_id, record.partition, record.offset, stamp_ms, latest_ms, is_final, acknowledgements
        )

    def ticked(self, record: LogRecord, time_ms: int) -> None:
        """Note a Tick, which says how far the time of a request partition is ahead of its stamps."""
        self._stamp_ms(record)
        lead_ms = time_ms - record.timestamp_ms
        self._leads_ms[record.partition] = max(self._leads_ms.get(record.partition, 0), lead_ms)

    def announced(self, record: LogRecord, leader_epoch: int) -> None:
        """Note a processor's announcement in a request partition."""
        self._stamp_ms(record)
        self._announcements[record.partition].append((record.offset, leader_epoch))
        self.drains.announced(record.partition, leader_epoch)

    def answered(self, record: LogRecord) -> None:
        """Note an answer when it is appended; `publish` takes it."""
        if record.key is not None and record.value is not None:
            self._published_commit_id = max(
                int(value) for key, value in record.headers if key == COMMIT_ID_HEADER and value is not None
            )
            self._unread.append(json.loads(record.value))

    def may_have(self, delivery_count_limit: int | None, lock_duration_ms: int | None) -> None:
        """Note other limits that may be in force from now on, for some groups."""
        if delivery_count_limit is not None:
            self._limits.add(delivery_count_limit)
        if lock_duration_ms is not None:
            self._lock_durations_ms.add(lock_duration_ms)

    def publish(self) -> None:
        """Take the answers that were appended together."""
        answers, self._unread = self._unread, []
        if not answers:
            return
        self.answer_count += len(answers)
        fetches = []
        for answer in answers:
            key = (answer["member_id"], answer["correlation_id"])
            request = self._requests.get(key)
            if answer["api_key"] in _FETCHES and request is not None:
                self._check_epoch(key, request, answer["leader_epoch"])
                if not answer["body"].get("error_code"):
                    fetches.append((key, request, answer["body"]))
        late: list[_Late] = []
        events = [event for fetch in fetches for event in self._events(*fetch, late)]
        restarted = set()
        due = [restart for restart in self._restarts if restart[0] <= self._published_commit_id]
        for commit_id, offset, share_key, restart in due:
            if commit_id < self._published_commit_id:
                restart()
            else:
                restarted.add(share_key)
                events.append((offset, 1, restart))
        self._restarts = self._restarts[len(due) :]
        for _, _, take in sorted(events, key=_order):
            take()
        for key, request, record_key, kind in late:
            if record_key[:3] not in restarted:
                self._check_over(key, request, record_key, kind)

    def committed(self, row: StateRow) -> None:
        """Note the cuts that a marker has, and where the state of a share-partition begins anew or ends."""
        if row.record_type is RecordType.COMMIT_MARKER:
            if row.time_ms < START_MS:
                self._violated(f"the marker of commit {row.commit_id} has time {row.time_ms}")
            for cut in row.payload["cuts"]:
                self._cut_ends[cut["partition"], cut["time_ms"]].append(cut["end_offset"])
        elif row.record_type in (RecordType.SHARE_SNAPSHOT, RecordType.SHARE_TOMBSTONE):
            share_key = (row.group_id, row.topic_id, row.partition)
            is_new = row.state_epoch > self._state_epochs.get(share_key, -1)
            if is_new or row.record_type is RecordType.SHARE_TOMBSTONE:
                begin = partial(self._begin, share_key, row)
                self._restarts.append((row.commit_id, row.request_offset, share_key, begin))
                self._start_offsets[share_key] = row.start_offset
            elif redriven := [entry for entry in row.transitions if entry.cause is Cause.REDRIVE]:
                redrive = partial(self.administered.redrive, share_key, redriven)
                self._restarts.append((row.commit_id, redriven[0].request_offset, share_key, redrive))
            self._state_epochs[share_key] = row.state_epoch

    def rebuilt(self, partition: int, cut_ms: int, end_offset: int) -> None:
        """Note that a group was rebuilt: its messages are of no cut that the marker has."""
        if (partition, cut_ms) not in self._cut_ends:
            self._cut_ends[partition, cut_ms].append(end_offset)

    def seen(self, member_id: str, leader_epoch: int) -> None:
        """Note that a member took an answer."""
        if leader_epoch < self._epochs_seen.get(member_id, 0):
            highest = self._epochs_seen[member_id]
            self._violated(f"member {member_id} took an answer of epoch {leader_epoch} after one of {highest}")
        self._epochs_seen[member_id] = max(self._epochs_seen.get(member_id, 0), leader_epoch)

    def _begin(self, share_key: ShareKey, row: StateRow) -> None:
        """Take in a state that begins anew."""
        self._highest_offsets[share_key] = max((entry.last_offset for entry in row.transitions), default=-1)
        self.administered.begin(share_key, row)

    # What one answer says.

    def _events(
        self, key: RequestKey, request: Request, body: dict[str, Any], late: list[_Late]
    ) -> Iterator[tuple[int, int, Callable[[], None]]]:
        """Yield what a request did: at which offset of the request log, and how to take it in."""
        yield request.offset, 0, lambda: late.extend(self._acknowledged(key, request, body))
        deadline_ms = body.get("lock_deadline_ms", 0)
        if deadline_ms:
            start_ms = deadline_ms - body["acquisition_lock_timeout_ms"]
            if body["acquisition_lock_timeout_ms"] not in self._lock_durations_ms:
                self._violated(f"the locks of request {key} last {body['acquisition_lock_timeout_ms']} ms")
            ends = self._cut_ends.get((request.partition, start_ms), [_NEVER])
            # Of several cuts at one time, the first that has the request.
            later = [end for end in ends if end > request.offset] or ends[-1:]
            if later == [_NEVER]:
                self._violated(f"the locks of request {key} run from {start_ms}, which is the time of no cut")
            is_draining = self.drains.is_draining(request.group_id, later[0], later[-1])
            yield later[0], -1, lambda: self._acquired_by(key, request, body, is_draining)

    def _check_epoch(self, key: RequestKey, request: Request, leader_epoch: int) -> None:
        for offset, announced in self._announcements[request.partition]:
            if announced > leader_epoch and offset < request.offset:
                self._violated(
                    f"request {key} at {request.offset} was answered by epoch {leader_epoch}, though epoch {announced} "
                    f"is announced at {offset}"
                )

    def _acknowledged(self, key: RequestKey, request: Request, body: dict[str, Any]) -> list[_Late]:
        """Take the acknowledgements that succeeded; returns those of records that the member does not hold."""
        succeeded = {
            (request.group_id, topic["topic_id"], partition["partition_index"])
            for topic in body.get("responses", ())
            for partition in topic["partitions"]
            if partition.get("is_acknowledged") and not partition.get("acknowledge_error_code")
        }
        late = []
        new = succeeded - request.applied
        request.applied |= succeeded
        for topic_id, partition, first, last, kind in request.acknowledgements:
            if (request.group_id, topic_id, partition) not in new:
                continue
            for offset in range(first, last + 1):
                record_key = (request.group_id, topic_id, partition, offset)
                delivery = self._records[record_key]
                if delivery.holder == key[0] and request.stamp_ms < delivery.latest_end_ms and not delivery.is_finished:
                    self._take_in(key, request, record_key, delivery, kind)
                else:
                    late.append((key, request, record_key, kind))
        if request.is_final and not request.is_closed:
            request.is_closed = True
            for record_key, delivery in self._records.items():
                if delivery.holder == key[0] and record_key[0] == request.group_id:
                    delivery.holder = ""
        return late

    def _take_in(
        self, key: RequestKey, request: Request, record_key: RecordKey, delivery: Delivery, kind: AcknowledgeType
    ) -> None:
        if request.latest_ms < delivery.end_ms:
            self._succeeded.add((*record_key, *key, ACKNOWLEDGE_CAUSE[kind]))
        if kind in _FINISHING:
            delivery.is_finished, delivery.holder = True, ""
            delivery.is_archived = kind is not AcknowledgeType.ACCEPT
        elif kind is AcknowledgeType.RENEW:
            delivery.end_ms = request.stamp_ms + min(self._lock_durations_ms)
            delivery.latest_end_ms = request.latest_ms + max(self._lock_durations_ms)
        else:
            delivery.count -= kind is AcknowledgeType.UNREAD
            delivery.holder = ""

    def _check_over(self, key: RequestKey, request: Request, record_key: RecordKey, kind: AcknowledgeType) -> None:
        """A success for a record that the member does not hold means that the record is finished."""
        delivery = self._records[record_key]
        is_used_up = delivery.count >= min(self._limits)
        if record_key[3] < self._start_offsets.get(record_key[:3], 0):
            # Acknowledgements of what an administrator has passed over succeed, and change nothing.
            return
        if not delivery.is_finished and not is_used_up:
            self._violated(
                f"{kind.name} of {record_key} by request {key} at {request.offset} succeeded, but {delivery} at "
                f"{request.stamp_ms}"
            )

    def _acquired_by(self, key: RequestKey, request: Request, body: dict[str, Any], is_draining: bool) -> None:
        deadline_ms = body.get("lock_deadline_ms", 0)
        start_ms = deadline_ms - body.get("acquisition_lock_timeout_ms", 0)
        for share_key, offset, count in _acquired(request.group_id, body):
            record_key = (*share_key, offset)
            event = (*record_key, key[0], count, deadline_ms)
            if event in self._acquired:
                continue
            self._acquired.add(event)
            if offset > self._highest_offsets.get(share_key, -1):
                self._highest_offsets[share_key] = offset
                if is_draining:
                    self._violated(f"{record_key} is new, and is delivered to {key[0]} by {key} while the group drains")
            delivery = self._records[record_key]
            if delivery.is_finished:
                self._violated(f"{record_key} was finished, and is delivered to {key[0]} by {key}")
            if delivery.holder and start_ms < delivery.end_ms:
                self._violated(f"{record_key} is delivered to {key[0]} from {start_ms} on, but {delivery}")
            if count != delivery.count + 1 or count > max(self._limits):
                self._violated(f"{record_key} is delivered to {key[0]} with count {count}, but {delivery}")
            delivery.count, delivery.holder = count, key[0]
            delivery.end_ms = delivery.latest_end_ms = deadline_ms

    # The state table.

    def compare(self, rows: Iterable[StateRow]) -> None:
        """Check that the state table has what answers contain, and answers contain what the table has."""
        rows = list(rows)
        acquired: set[tuple[Any, ...]] = set()
        applied: dict[tuple[Any, ...], int] = defaultdict(int)
        for row in rows:
            for entry in row.transitions:
                share_key = (row.group_id, row.topic_id, row.partition)
                offsets = range(entry.first_offset, entry.last_offset + 1)
                if entry.cause is Cause.ACQUIRE:
                    acquired.update(
                        (*share_key, offset, entry.member_id, entry.delivery_count, entry.deadline_ms)
                        for offset in offsets
                    )
                elif entry.cause in _MEMBER_CAUSES:
                    sender = self._senders.get((row.request_partition, entry.request_offset), ("", 0))
                    for offset in offsets:
                        applied[(*share_key, offset, *sender, entry.cause)] += 1
        self._compare_sets("acquisition", self._acquired, acquired)
        for key in sorted(self._succeeded - applied.keys(), key=str):
            self._violated(f"acknowledgement {key} was published, but is not in the state table")
        for group_id, topic_id, partition, offset, member_id, correlation_id, cause in applied:
            request = self._requests.get((member_id, correlation_id))
            if cause is not Cause.SESSION_CLOSE and (
                request is None or (group_id, topic_id, partition) not in request.applied
            ):
                self._violated(
                    f"{cause.value} of {(group_id, topic_id, partition, offset)} by request "
                    f"{(member_id, correlation_id)} is in the state table, but its success was not published"
                )
        for key, count in applied.items():
            if count > 1:
                self._violated(f"acknowledgement {key} was applied {count} times")

    def check_dead_letters(self, rows: Iterable[StateRow], dead_letters: Iterable[LogRecord]) -> None:
        """Check that each record which the table has as written to a dead-letter topic is there."""
        written = set()
        for record in dead_letters:
            headers = dict(record.headers)
            written.add(tuple(headers[f"__dlq.errors.{name}"] for name in ("group", "topic", "partition", "offset")))
        for row in rows:
            for entry in row.transitions:
                if entry.cause is not Cause.DEAD_LETTER_WRITTEN:
                    continue
                for offset in range(entry.first_offset, entry.last_offset + 1):
                    key = (row.group_id, row.topic, str(row.partition), str(offset))
                    if tuple(part.encode() for part in key) not in written:
                        self._violated(f"{key} is archived, but has no dead-letter record")

    def _compare_sets(self, name: str, published: set[tuple[Any, ...]], stored: set[tuple[Any, ...]]) -> None:
        for key in sorted(published - stored, key=str)[:5]:
            self._violated(f"{name} {key} was published, but is not in the state table")
        for key in sorted(stored - published, key=str)[:5]:
            self._violated(f"{name} {key} is in the state table, but was not published")

    def _stamp_ms(self, record: LogRecord) -> int:
        stamp_ms = max(record.timestamp_ms, self._stamps_ms.get(record.partition, 0))
        self._stamps_ms[record.partition] = stamp_ms
        return stamp_ms

    def _violated(self, text: str) -> None:
        self.violations.append(text)


def _order(event: tuple[int, int, Callable[[], None]]) -> tuple[int, int]:
    return event[:2]


def _acquired(group_id: str, body: dict[str, Any]) -> Iterator[tuple[ShareKey, int, int]]:
    for topic in body.get("responses", ()):
        for partition in topic["partitions"]:
            for acquired in partition.get("acquired_records", ()):
                share_key = (group_id, topic["topic_id"], partition["partition_index"])
                for offset in range(acquired["first_offset"], acquired["last_offset"] + 1):
                    yield share_key, offset, acquired["delivery_count"]
