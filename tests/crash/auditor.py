"""Audits a group's records: from the members' ledgers, the logs and the state table alone.

State transitions happen exactly once per logged request, responses at least once, and members take each response once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.audit.history.group_history import GroupHistory, group_history
from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message, ResponseEnvelope, decoded_request, parsed
from sharegroup.protocol.rows import StateRow
from sharegroup.protocol.share_fetch import (
    FetchPartition,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tests.crash.ledger import Delivery, Ledger
from tests.support.site import BROKER

_MOST_FINDINGS = 20
_FINAL_TYPES = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)

_ACKNOWLEDGING: dict[ApiKey, type[Message]] = {
    ApiKey.SHARE_FETCH: ShareFetchRequest,
    ApiKey.SHARE_ACKNOWLEDGE: ShareAcknowledgeRequest,
}


class RecordKey(NamedTuple):
    """A record."""

    topic: str
    partition: int
    offset: int


class _Change(NamedTuple):
    """One transition of one record."""

    cause: Cause
    to_state: RecordState
    member_id: str
    delivery_count: int
    deadline_ms: int
    request_offset: int
    row_request_offset: int


@dataclass
class Evidence:
    """The input of an audit.

    Attributes:
        rows: all rows of the state table.
        requests: records of the group's partition of the request log.
        responses: the responses to the group's members.
        ledgers: what the members wrote down.
        produced: (topic, partition) → end offset; everything from 0 on was produced.
        broker: defaults and bounds that were in force.
    """

    group_id: str
    rows: list[StateRow]
    requests: list[LogRecord]
    responses: list[ResponseEnvelope]
    ledgers: list[Ledger]
    produced: dict[tuple[str, int], int]

    broker: BrokerConfig = BROKER

    def findings(self) -> list[str]:
        """Return the violations so far."""
        history = group_history(self.group_id, self.rows)
        changes = _changes(row for row in self.rows if row.group_id == self.group_id)
        clients = {client_id: member_id for member_id, client_id in history.client_ids.items()}
        return [
            *(str(finding) for finding in verify(self.rows, self.broker).findings),
            *_first(_delivered_twice(self.ledgers)),
            *_first(_delivered_without_acquisition(self.ledgers, clients, changes)),
            *_first(_confirmed_without_effect(self.ledgers, clients, changes)),
            *_first(_delivered_though_acknowledged(self, changes, history)),
            *_first(_differing_responses(self.responses)),
        ]

    def findings_when_drained(self) -> list[str]:
        """Return the violations, with the records that were lost, once nothing is left to be delivered."""
        return [*self.findings(), *_first(_lost(self)), *_first(_undelivered(self))]


def _first(findings: Iterator[str]) -> list[str]:
    return [finding for finding, _ in zip(findings, range(_MOST_FINDINGS), strict=False)]


def _changes(rows: Iterable[StateRow]) -> dict[RecordKey, list[_Change]]:
    changes: dict[RecordKey, list[_Change]] = defaultdict(list)
    for row in rows:
        for entry in row.transitions:
            change = _Change(
                entry.cause,
                entry.to_state,
                entry.member_id,
                entry.delivery_count,
                entry.deadline_ms,
                entry.request_offset,
                row.request_offset,
            )
            for offset in range(entry.first_offset, entry.last_offset + 1):
                changes[RecordKey(row.topic, row.partition, offset)].append(change)
    return changes


def _lost(evidence: Evidence) -> Iterator[str]:
    finished: dict[tuple[str, int], set[int]] = defaultdict(set)
    for history in group_history(evidence.group_id, evidence.rows).partitions.values():
        for run in history.records:
            if run.state.is_terminal:
                finished[history.topic, history.partition].update(range(run.first_offset, run.last_offset + 1))
    for (topic, partition), end_offset in evidence.produced.items():
        for offset in sorted(set(range(end_offset)) - finished[topic, partition]):
            yield f"{topic}-{partition} {offset} was produced, and is not finished"


def _undelivered(evidence: Evidence) -> Iterator[str]:
    seen = {RecordKey(*delivery[:3]) for ledger in evidence.ledgers for delivery in ledger.deliveries}
    for (topic, partition), end_offset in evidence.produced.items():
        for offset in range(end_offset):
            if RecordKey(topic, partition, offset) not in seen:
                yield f"{topic}-{partition} {offset} was delivered to nobody"


def _delivered_twice(ledgers: Iterable[Ledger]) -> Iterator[str]:
    """A delivery is one acquisition: only `unread` takes a count back, and nobody has seen the record then."""
    counts = Counter(delivery for ledger in ledgers for delivery in ledger.deliveries)
    yield from (f"{delivery} was made {count} times" for delivery, count in counts.items() if count > 1)


def _delivered_without_acquisition(
    ledgers: Iterable[Ledger], clients: dict[str, str], changes: dict[RecordKey, list[_Change]]
) -> Iterator[str]:
    for ledger in ledgers:
        for delivery in ledger.deliveries:
            if not any(
                (change.cause, change.member_id, change.delivery_count)
                == (Cause.ACQUIRE, clients.get(ledger.client_id), delivery.delivery_count)
                for change in changes[_key(delivery)]
            ):
                yield f"{delivery} of {ledger.client_id} is not in the state table"


def _confirmed_without_effect(
    ledgers: Iterable[Ledger], clients: dict[str, str], changes: dict[RecordKey, list[_Change]]
) -> Iterator[str]:
    """A late acknowledgement succeeds, too, once the start offset has passed the record."""
    for ledger in ledgers:
        member_id = clients.get(ledger.client_id)
        for acknowledgement in ledger.acknowledgements:
            if acknowledgement.is_confirmed and not any(
                change.to_state.is_terminal
                or (change.cause, change.member_id) == (acknowledgement.acknowledge_type, member_id)
                for change in changes[
                    RecordKey(acknowledgement.topic, acknowledgement.partition, acknowledgement.offset)
                ]
            ):
                yield f"{acknowledgement} of {ledger.client_id} was confirmed, and is not in the state table"


def _delivered_though_acknowledged(
    evidence: Evidence, changes: dict[RecordKey, list[_Change]], history: GroupHistory
) -> Iterator[str]:
    """Records that were delivered after an acknowledgement that was appended before their lock's deadline.

    One that was refused does not count: the share session that it belonged to ended with an earlier processor. A
    request that was sent twice counts from its first copy: its repeat gets the same response, though the member may
    hold the record again by then.
    """
    first_copies: set[tuple[str, int]] = set()
    topics = {partition.topic_id: partition.topic for partition in history.partitions.values()}
    refused = _refused_requests(evidence.responses)
    now_ms = 0
    for record in evidence.requests:
        now_ms = max(now_ms, record.timestamp_ms)
        envelope = decoded_request(record.value)
        if envelope.group_id != evidence.group_id or envelope.api_key not in _ACKNOWLEDGING:
            continue
        request_key = envelope.member_id, envelope.correlation_id
        if request_key in refused or request_key in first_copies:
            continue
        first_copies.add(request_key)
        request = parsed(_ACKNOWLEDGING[ApiKey(envelope.api_key)], envelope.body)
        assert isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest)
        for topic in request.topics:
            for partition in topic.partitions:
                types = _acknowledge_types(topics.get(topic.topic_id, ""), partition)
                # The acknowledgements of a partition take effect together, or not at all.
                if all(_is_held(changes[key], envelope.member_id, record.offset, now_ms) for key in types):
                    for key in (key for key, kind in types.items() if kind in _FINAL_TYPES):
                        if _is_delivered_after(changes[key], record.offset):
                            yield f"{key} was delivered after message {record.offset} acknowledged it in time"


def _refused_requests(responses: Iterable[ResponseEnvelope]) -> set[tuple[str, int]]:
    """Return (member id, correlation id) of requests whose responses are all errors."""
    codes: dict[tuple[str, int], set[int]] = defaultdict(set)
    for response in responses:
        codes[response.member_id, response.correlation_id].add(response.body.get("error_code", 0))
    return {key for key, of_request in codes.items() if 0 not in of_request}


def _differing_responses(responses: Iterable[ResponseEnvelope]) -> Iterator[str]:
    """Requests with two responses that hand out records and differ; a response may come more than once."""
    first: dict[tuple[str, int], ResponseEnvelope] = {}
    for response in responses:
        if response.api_key != ApiKey.SHARE_FETCH or not _has_records(response):
            continue
        before = first.setdefault((response.member_id, response.correlation_id), response)
        if before.body != response.body:
            request = f"request {response.correlation_id} of {response.member_id}"
            yield f"{request} has two responses: {before.body}, {response.body}"


def _has_records(response: ResponseEnvelope) -> bool:
    body = parsed(ShareFetchResponse, response.body)
    assert isinstance(body, ShareFetchResponse)
    return any(partition.acquired_records for topic in body.responses for partition in topic.partitions)


def _acknowledge_types(topic: str, partition: FetchPartition) -> dict[RecordKey, AcknowledgeType]:
    types: dict[RecordKey, AcknowledgeType] = {}
    for acknowledged in partition.acknowledgement_batches:
        for first, last, kind in acknowledged.batch.runs():
            for offset in range(first, last + 1):
                types[RecordKey(topic, partition.partition_index, offset)] = kind
    return types


def _is_held(changes: list[_Change], member_id: str, request_offset: int, now_ms: int) -> bool:
    """Return True if the member holds the record, by the transitions of earlier messages."""
    before = [change for change in changes if _is_before(change, request_offset)]
    if not before:
        return False
    last = before[-1]
    return last.to_state is RecordState.ACQUIRED and last.member_id == member_id and last.deadline_ms > now_ms


def _is_before(change: _Change, request_offset: int) -> bool:
    # Records are acquired at the end of a cut, after all of its messages.
    is_applied_before = change.cause is not Cause.ACQUIRE and change.request_offset < request_offset
    return change.row_request_offset < request_offset or is_applied_before


def _is_delivered_after(changes: list[_Change], request_offset: int) -> bool:
    return any(change.cause is Cause.ACQUIRE and not _is_before(change, request_offset) for change in changes)


def _key(delivery: Delivery) -> RecordKey:
    return RecordKey(delivery.topic, delivery.partition, delivery.offset)


def assert_only_appended(before: list[StateRow], after: list[StateRow]) -> None:
    """All rows that were there are there, and nothing was added to what their processors wrote."""
    epoch = max(row.leader_epoch for row in before)
    assert [row for row in after if row.leader_epoch <= epoch] == before
