"""Whether a group's records came through: from the members' ledgers, the request log and the state table alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.audit.history import GroupHistory, group_history
from sharegroup.audit.verify import verify
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_request, parsed
from sharegroup.protocol.rows import StateRow
from sharegroup.protocol.share_fetch import FetchPartition, ShareAcknowledgeRequest, ShareFetchRequest
from tests.crash.ledger import Delivery, Ledger
from tests.support.site import BROKER

_MOST_FINDINGS = 20
_LAST_WORDS = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


class Place(NamedTuple):
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
    """What an audit looks at.

    Attributes:
        group_id: the group.
        rows: all rows of the state table.
        requests: records of the group's partition of the request log.
        ledgers: what the members wrote down.
        produced: (topic, partition) → end offset; everything from 0 on was produced.
    """

    group_id: str
    rows: list[StateRow]
    requests: list[LogRecord]
    ledgers: list[Ledger]
    produced: dict[tuple[str, int], int]

    def findings(self) -> list[str]:
        """What went wrong so far; empty when nothing did."""
        history = group_history(self.group_id, self.rows)
        changes = _changes(row for row in self.rows if row.group_id == self.group_id)
        clients = {client_id: member_id for member_id, client_id in history.client_ids.items()}
        return [
            *(str(finding) for finding in verify(self.rows, BROKER).findings),
            *_first(_delivered_twice(self.ledgers)),
            *_first(_delivered_from_nowhere(self.ledgers, clients, changes)),
            *_first(_confirmed_in_vain(self.ledgers, clients, changes)),
            *_first(_delivered_though_acknowledged(self.group_id, self.requests, changes, history)),
        ]

    def findings_when_drained(self) -> list[str]:
        """As `findings`, and what was lost, once nothing is left to be delivered."""
        return [*self.findings(), *_first(_lost(self)), *_first(_unseen(self))]


def _first(findings: Iterator[str]) -> list[str]:
    return [finding for finding, _ in zip(findings, range(_MOST_FINDINGS), strict=False)]


def _changes(rows: Iterable[StateRow]) -> dict[Place, list[_Change]]:
    changes: dict[Place, list[_Change]] = defaultdict(list)
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
                changes[Place(row.topic, row.partition, offset)].append(change)
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


def _unseen(evidence: Evidence) -> Iterator[str]:
    seen = {Place(*delivery[:3]) for ledger in evidence.ledgers for delivery in ledger.deliveries}
    for (topic, partition), end_offset in evidence.produced.items():
        for offset in range(end_offset):
            if Place(topic, partition, offset) not in seen:
                yield f"{topic}-{partition} {offset} was delivered to nobody"


def _delivered_twice(ledgers: Iterable[Ledger]) -> Iterator[str]:
    """A delivery is one acquisition: only `unread` takes a count back, and nobody has seen the record then."""
    counts = Counter(delivery for ledger in ledgers for delivery in ledger.deliveries)
    yield from (f"{delivery} was made {count} times" for delivery, count in counts.items() if count > 1)


def _delivered_from_nowhere(
    ledgers: Iterable[Ledger], clients: dict[str, str], changes: dict[Place, list[_Change]]
) -> Iterator[str]:
    for ledger in ledgers:
        for delivery in ledger.deliveries:
            if not any(
                (change.cause, change.member_id, change.delivery_count)
                == (Cause.ACQUIRE, clients.get(ledger.client_id), delivery.delivery_count)
                for change in changes[_place(delivery)]
            ):
                yield f"{delivery} of {ledger.client_id} is not in the state table"


def _confirmed_in_vain(
    ledgers: Iterable[Ledger], clients: dict[str, str], changes: dict[Place, list[_Change]]
) -> Iterator[str]:
    """Whoever comes too late is told that all is well, too, once the start offset has passed the record."""
    for ledger in ledgers:
        member_id = clients.get(ledger.client_id)
        for word in ledger.words:
            if word.is_confirmed and not any(
                change.to_state.is_terminal or (change.cause, change.member_id) == (word.acknowledge_type, member_id)
                for change in changes[Place(word.topic, word.partition, word.offset)]
            ):
                yield f"{word} of {ledger.client_id} was confirmed, and is not in the state table"


def _delivered_though_acknowledged(
    group_id: str, requests: Iterable[LogRecord], changes: dict[Place, list[_Change]], history: GroupHistory
) -> Iterator[str]:
    """Records that were delivered after an acknowledgement that was appended before their lock's deadline."""
    topics = {found.topic_id: found.topic for found in history.partitions.values()}
    now_ms = 0
    for record in requests:
        now_ms = max(now_ms, record.timestamp_ms)
        envelope = decoded_request(record.value)
        if envelope.group_id != group_id or envelope.api_key not in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
            continue
        is_fetch = envelope.api_key == ApiKey.SHARE_FETCH
        request = parsed(ShareFetchRequest if is_fetch else ShareAcknowledgeRequest, envelope.body)
        assert isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest)
        for topic in request.topics:
            for partition in topic.partitions:
                said = _said(topics.get(topic.topic_id, ""), partition)
                # The acknowledgements of a partition take effect together, or not at all.
                if all(_is_held(changes[p], envelope.member_id, record.offset, now_ms) for p in said):
                    for place in (place for place, last in said.items() if last in _LAST_WORDS):
                        if _is_delivered_after(changes[place], record.offset):
                            yield f"{place} was delivered after message {record.offset} acknowledged it in time"


def _said(topic: str, partition: FetchPartition) -> dict[Place, AcknowledgeType]:
    said: dict[Place, AcknowledgeType] = {}
    for batch in partition.acknowledgement_batches:
        for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
            kind = batch.acknowledge_types[index if len(batch.acknowledge_types) > 1 else 0]
            said[Place(topic, partition.partition_index, offset)] = kind
    return said


def _is_held(changes: list[_Change], member_id: str, request_offset: int, now_ms: int) -> bool:
    """Whether the member holds the record, as far as what was applied before a message says."""
    before = [change for change in changes if _is_before(change, request_offset)]
    if not before:
        return False
    last = before[-1]
    return last.to_state is RecordState.ACQUIRED and last.member_id == member_id and last.deadline_ms > now_ms


def _is_before(change: _Change, request_offset: int) -> bool:
    # What was acquired in a batch was acquired after all of its messages.
    is_judged_before = change.cause is not Cause.ACQUIRE and change.request_offset < request_offset
    return change.row_request_offset < request_offset or is_judged_before


def _is_delivered_after(changes: list[_Change], request_offset: int) -> bool:
    return any(change.cause is Cause.ACQUIRE and not _is_before(change, request_offset) for change in changes)


def _place(delivery: Delivery) -> Place:
    return Place(delivery.topic, delivery.partition, delivery.offset)


def assert_unchanged(before: list[StateRow], after: list[StateRow]) -> None:
    """All rows that were there are there, and the last batch among them was not committed once more."""
    epoch = max(row.leader_epoch for row in before)
    last = max(row.commit_id for row in before if row.leader_epoch == epoch)
    assert [row for row in after if row.leader_epoch <= epoch] == before
    assert [row for row in after if row.leader_epoch > epoch and row.commit_id == last] == []
