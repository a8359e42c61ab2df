"""The ledger: who got what, by requests and responses alone, and whether the state table agrees with the responses.

It knows the protocol and nothing of the engine. Responses are taken publication by publication. Within one, they are
taken in the order in which they were applied: an acknowledgement where its request is in the log, an acquisition at
the end of its cut, which is known by the time from which its locks run. Where the state of a share-partition begins
again, for an administrator or since its topic is gone, so do its accounts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic_core import from_json

from sharegroup.core.cause_rules import ACKNOWLEDGE_CAUSE
from sharegroup.core.record_state import AcknowledgeType, Cause
from sharegroup.logs.port import LogRecord
from sharegroup.processor.output import COMMIT_ID_HEADER
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.rows import RecordType, StateRow
from tests.simulation.administered import Administered, Delivery, RecordKey, ShareKey
from tests.simulation.drains import Drains
from tests.simulation.requests import Copy, Request, RequestKey, Requests
from tests.simulation.sink_ledger import SinkLedger
from tests.simulation.world import START_MS

_FINISHING = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP)
_FETCHES = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
_MEMBER_CAUSES = frozenset({*ACKNOWLEDGE_CAUSE.values(), Cause.SESSION_CLOSE})
_NEVER = 1 << 62


class _Response(NamedTuple):
    """A response to a member's fetch or acknowledgement, and the copy of the request that it belongs to."""

    key: RequestKey
    request: Request
    copy: Copy
    body: dict[str, Any]

    @property
    def is_refusal(self) -> bool:
        """Return True if the request, or the acknowledgements of one share-partition, were refused."""
        return bool(self.body.get("error_code")) or any(
            partition.get("acknowledge_error_code")
            for topic in self.body.get("responses", ())
            for partition in topic["partitions"]
        )


_Event = tuple[int, int, Callable[[], object]]
"""Offset of the request log, order there, and how to take it in."""
_Late = tuple[_Response, RecordKey, AcknowledgeType]
"""An acknowledgement of a record that the member does not hold."""


class Ledger:
    """Keeps the accounts of one schedule.

    Args:
        delivery_count_limit: in force at first.
        lock_duration_ms: in force at first.
        member_silence_ms: after which a member loses its locks; 0 for never.
    """

    def __init__(self, delivery_count_limit: int, lock_duration_ms: int, member_silence_ms: int = 0) -> None:
        self.violations: list[str] = []
        self.response_count = 0
        self._limits = {delivery_count_limit}
        self._lock_durations_ms = {lock_duration_ms}
        self._member_silence_ms = member_silence_ms
        self._state_epochs: dict[ShareKey, int] = {}
        self._start_offsets: dict[ShareKey, int] = {}
        self._restarts: list[tuple[int, int, ShareKey, Callable[[], None]]] = []
        """(Commit id, request offset, share-partition, how to take it in) of what an administrator has decided, or of
        states that ended."""
        self._restarted: set[ShareKey] = set()
        """Share-partitions that start again in this publication, before or after what was acknowledged there."""
        self.published_commit_id = -1
        """The last commit that a response depends on."""
        self._begun_at: dict[ShareKey, int] = {}
        """Request offset at which the state of a share-partition started again or ended last."""
        self._records: dict[RecordKey, Delivery] = defaultdict(Delivery)
        self.administered = Administered(self._records, self._violated)
        self.drains = Drains()
        self.sinks = SinkLedger()
        """Of groups with a sink: what sinks say changes their records, not only acknowledgements."""
        self._highest_offsets: dict[ShareKey, int] = {}
        """The highest offset that was ever in flight, or was imported."""
        self.requests = Requests()
        self._epochs_seen: dict[str, int] = {}
        self._acquired: set[tuple[Any, ...]] = set()
        self._succeeded: set[tuple[Any, ...]] = set()
        self._unread: list[dict[str, Any]] = []

    # What happens.

    def announced(self, record: LogRecord, leader_epoch: int) -> None:
        """Note a processor's announcement in a request partition."""
        self.requests.announced(record, leader_epoch)
        self.drains.announced(record, leader_epoch)

    def note_response(self, record: LogRecord) -> None:
        """Note a response when it is appended; `publish` takes it."""
        if record.key is not None and record.value is not None:
            self.published_commit_id = max(
                int(value) for key, value in record.headers if key == COMMIT_ID_HEADER and value is not None
            )
            self._unread.append(from_json(record.value))

    def may_have(self, delivery_count_limit: int | None, lock_duration_ms: int | None) -> None:
        """Note other limits that may be in force from now on, for some groups."""
        if delivery_count_limit is not None:
            self._limits.add(delivery_count_limit)
        if lock_duration_ms is not None:
            self._lock_durations_ms.add(lock_duration_ms)

    def publish(self) -> None:
        """Take the responses that were appended together."""
        responses, self._unread = self._unread, []
        if not responses:
            return
        self.response_count += len(responses)
        late: list[_Late] = []
        events: list[_Event] = []
        for fields in responses:
            key = (fields["member_id"], fields["correlation_id"])
            request = self.requests.get(key)
            if fields["api_key"] not in _FETCHES or request is None:
                continue
            response = _Response(key, request, request.copy_of_response, fields["body"])
            self._check_epoch(response, fields["leader_epoch"])
            if not response.body.get("error_code"):
                events += self._events(response, late)
            if response.is_refusal:
                request.note_refusal(response.body)
        self._restarted.clear()
        due = [restart for restart in self._restarts if restart[0] <= self.published_commit_id]
        for commit_id, offset, share_key, restart in due:
            if commit_id < self.published_commit_id:
                restart()
            else:
                self._restarted.add(share_key)
                events.append((offset, 1, restart))
        self._restarts = self._restarts[len(due) :]
        for _, _, take in sorted(events, key=itemgetter(0, 1)):
            take()
        for response, record_key, kind in late:
            # A processor that stood still responds from a state that may have ended since.
            is_of_former_state = response.request.copies[0].offset < self._begun_at.get(record_key[:3], -1)
            if record_key[:3] not in self._restarted and not is_of_former_state:
                self._check_over(response, record_key, kind)

    def committed(self, row: StateRow) -> None:
        """Note the cuts that a marker has, and where the state of a share-partition starts again or ends."""
        self.sinks.committed(row)
        if row.record_type is RecordType.COMMIT_MARKER:
            if row.time_ms < START_MS:
                self._violated(f"the marker of commit {row.commit_id} has time {row.time_ms}")
            self.requests.committed(row)
        elif row.record_type in (RecordType.SHARE_SNAPSHOT, RecordType.SHARE_TOMBSTONE):
            share_key = (row.group_id, row.topic_id, row.partition)
            is_new = row.state_epoch > self._state_epochs.get(share_key, -1)
            if is_new or row.record_type is RecordType.SHARE_TOMBSTONE:
                begin = partial(self._begin, share_key, row)
                self._restarts.append((row.commit_id, row.request_offset, share_key, begin))
                self._start_offsets[share_key] = row.start_offset
            if redriven := [entry for entry in row.transitions if entry.cause is Cause.REDRIVE]:
                redrive = partial(self.administered.redrive, share_key, redriven)
                self._restarts.append((row.commit_id, redriven[0].request_offset, share_key, redrive))
            self._state_epochs[share_key] = row.state_epoch

    def seen(self, member_id: str, leader_epoch: int) -> None:
        """Note that a member took a response."""
        if leader_epoch < self._epochs_seen.get(member_id, 0):
            highest = self._epochs_seen[member_id]
            self._violated(f"member {member_id} took a response of epoch {leader_epoch} after one of {highest}")
        self._epochs_seen[member_id] = max(self._epochs_seen.get(member_id, 0), leader_epoch)

    def _begin(self, share_key: ShareKey, row: StateRow) -> None:
        """Take in a state that starts again."""
        self._begun_at[share_key] = row.request_offset
        self._highest_offsets[share_key] = max((entry.last_offset for entry in row.transitions), default=-1)
        self.administered.begin(share_key, row)

    # What one response says.

    def _events(self, response: _Response, late: list[_Late]) -> Iterator[_Event]:
        """Yield what a request did: at which offset of the request log, and how to take it in."""
        if response.request.group_id not in self.sinks:
            yield response.copy.offset, 0, lambda: late.extend(self._acknowledged(response))
        deadline_ms, lock_ms = (
            response.body.get("lock_deadline_ms", 0),
            response.body.get("acquisition_lock_timeout_ms", 0),
        )
        if not deadline_ms:
            return
        if lock_ms not in self._lock_durations_ms:
            self._violated(f"the locks of request {response.key} last {lock_ms} ms")
        cuts = self.requests.cuts_of(response.request.partition, response.copy.offset, deadline_ms - lock_ms)
        if not cuts:
            self._violated(
                f"the locks of request {response.key} run from {deadline_ms - lock_ms}, which is the time of no cut"
            )
            cuts = [_NEVER]
        is_draining = self.drains.is_draining(response.request.group_id, cuts[0], cuts[-1])
        for cut in cuts[:-1]:
            yield cut, -1, partial(self._acquired_if_possible, response, cut, is_draining)
        yield cuts[-1], -1, partial(self._acquired_by, response, is_draining)

    def _check_epoch(self, response: _Response, leader_epoch: int) -> None:
        # An older processor may have applied the first copy before it stood still.
        offset = response.request.copies[0].offset
        for at, announced in self.requests.announced_before(response.request.partition, offset, leader_epoch):
            self._violated(
                f"request {response.key} at {offset} got a response of epoch {leader_epoch}, though epoch {announced} "
                f"is announced at {at}"
            )

    def _acknowledged(self, response: _Response) -> list[_Late]:
        """Take the acknowledgements that succeeded; returns those of records that the member does not hold."""
        request, member_id = response.request, response.key[0]
        succeeded = {
            (request.group_id, topic["topic_id"], partition["partition_index"])
            for topic in response.body.get("responses", ())
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
                is_held = delivery.holder == member_id and response.copy.stamp_ms < delivery.latest_end_ms
                if is_held and not delivery.is_finished:
                    self._take_in(response, record_key, delivery, kind)
                else:
                    late.append((response, record_key, kind))
        if request.is_final and not request.is_closed:
            request.is_closed = True
            for record_key, delivery in self._records.items():
                if delivery.holder == member_id and record_key[0] == request.group_id:
                    delivery.holder = ""
        return late

    def _take_in(self, response: _Response, record_key: RecordKey, delivery: Delivery, kind: AcknowledgeType) -> None:
        copy = response.copy
        delivery.may_be_finished = not self._is_locked(delivery, copy.latest_ms, copy.offset)
        if not delivery.may_be_finished and record_key[:3] not in self._restarted:
            self._succeeded.add((*record_key, *response.key, ACKNOWLEDGE_CAUSE[kind]))
        if kind in _FINISHING:
            delivery.is_finished, delivery.holder = True, ""
            delivery.is_archived = kind is not AcknowledgeType.ACCEPT
        elif kind is AcknowledgeType.RENEW:
            delivery.end_ms = copy.stamp_ms + min(self._lock_durations_ms)
            delivery.latest_end_ms = copy.latest_ms + max(self._lock_durations_ms)
        else:
            delivery.count -= kind is AcknowledgeType.UNREAD
            delivery.holder = ""

    def _check_over(self, response: _Response, record_key: RecordKey, kind: AcknowledgeType) -> None:
        """A success for a record that the member does not hold means that the record is finished."""
        delivery = self._records[record_key]
        is_used_up = delivery.count >= min(self._limits)
        if record_key[3] < self._start_offsets.get(record_key[:3], 0):
            # Acknowledgements of what an administrator has passed over succeed, and change nothing.
            return
        if not (delivery.is_finished or delivery.may_be_finished or is_used_up):
            self._violated(
                f"{kind.name} of {record_key} by request {response.key} at {response.copy.offset} succeeded, but "
                f"{delivery} at {response.copy.stamp_ms}"
            )

    def _acquired_if_possible(self, response: _Response, cut_end: int, is_draining: bool) -> None:
        """Take an acquisition in one of several cuts of a millisecond, if its records are free there."""
        if response.request.group_id in self.sinks:
            return
        start_ms = response.body["lock_deadline_ms"] - response.body["acquisition_lock_timeout_ms"]
        for share_key, offset, count in _acquired(response):
            delivery = self._records[(*share_key, offset)]
            is_locked = self._is_locked(delivery, start_ms, cut_end)
            if delivery.is_finished or is_locked or count != delivery.count + 1:
                return
        self._acquired_by(response, is_draining)

    def _acquired_by(self, response: _Response, is_draining: bool) -> None:
        key, body = response.key, response.body
        deadline_ms = body.get("lock_deadline_ms", 0)
        start_ms = deadline_ms - body.get("acquisition_lock_timeout_ms", 0)
        for share_key, offset, count in _acquired(response):
            record_key = (*share_key, offset)
            event = (*record_key, key[0], count, deadline_ms)
            if event in self._acquired:
                continue
            self._acquired.add(event)
            if offset > self._highest_offsets.get(share_key, -1):
                self._highest_offsets[share_key] = offset
                if is_draining:
                    self._violated(f"{record_key} is new, and is delivered to {key[0]} by {key} while the group drains")
            if share_key[0] in self.sinks:
                continue
            delivery = self._records[record_key]
            if delivery.is_finished:
                self._violated(f"{record_key} was finished, and is delivered to {key[0]} by {key}")
            if self._is_locked(delivery, start_ms):
                self._violated(f"{record_key} is delivered to {key[0]} from {start_ms} on, but {delivery}")
            if count != delivery.count + 1 or count > max(self._limits):
                self._violated(f"{record_key} is delivered to {key[0]} with count {count}, but {delivery}")
            delivery.count, delivery.holder, delivery.start_ms = count, key[0], start_ms
            delivery.end_ms = delivery.latest_end_ms = deadline_ms
            delivery.may_be_finished = False

    def _is_locked(self, delivery: Delivery, at_ms: int, cut_end: int = _NEVER) -> bool:
        """Return True if nobody else may have a record yet, at the end of a cut of the request log."""
        if not delivery.holder or at_ms >= delivery.end_ms:
            return False
        if self.requests.may_have_closed(delivery.holder, delivery.start_ms, at_ms, cut_end):
            return False
        silence_ms = self._member_silence_ms
        return not (silence_ms and self.requests.was_silent(delivery.holder, silence_ms, delivery.start_ms, at_ms))

    # The state table.

    def compare(self, rows: Iterable[StateRow]) -> None:
        """Check that the state table has what responses contain, and responses contain what the table has."""
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
                elif entry.cause in _MEMBER_CAUSES and row.group_id not in self.sinks:
                    sender = self.requests.sender(row.request_partition, entry.request_offset)
                    for offset in offsets:
                        applied[(*share_key, offset, *sender, entry.cause)] += 1
        self._compare_sets("acquisition", self._acquired, acquired)
        for key in sorted(self._succeeded - applied.keys(), key=str):
            self._violated(f"acknowledgement {key} was published, but is not in the state table")
        for group_id, topic_id, partition, offset, member_id, correlation_id, cause in applied:
            request = self.requests.get((member_id, correlation_id))
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

    def _violated(self, text: str) -> None:
        self.violations.append(text)


def _acquired(response: _Response) -> Iterator[tuple[ShareKey, int, int]]:
    for topic in response.body.get("responses", ()):
        for partition in topic["partitions"]:
            for acquired in partition.get("acquired_records", ()):
                share_key = (response.request.group_id, topic["topic_id"], partition["partition_index"])
                for offset in range(acquired["first_offset"], acquired["last_offset"] + 1):
                    yield share_key, offset, acquired["delivery_count"]
