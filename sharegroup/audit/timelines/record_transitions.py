"""The transitions of one record, each by itself; `lineage` has them by delivery."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sharegroup.protocol.rows import StateRow, TransitionEntry


@dataclass(frozen=True, slots=True)
class RecordTransition:
    """A transition of one record.

    Attributes:
        time_ms: its time; epoch ms.
        from_state: the state before; None when the record was not in flight.
        delivery_count: deliveries after it.
        member_id: the member that holds, or held, the record; "" for none.
        client_id: that member's client id, "" when it is not known.
        deadline_ms: locked until, or not before; 0 when neither.
        reason: the reason that the member gave.
        request_offset: offset of the message in the request log that caused it.
        leader_epoch: epoch of the processor that wrote it.
    """

    time_ms: int
    cause: str
    from_state: str | None
    to_state: str
    delivery_count: int
    member_id: str
    client_id: str
    deadline_ms: int
    reason: str
    request_offset: int
    leader_epoch: int


def record_transitions(rows: Iterable[StateRow], topic: str, partition: int, offset: int) -> list[RecordTransition]:
    """Return the transitions of a record of a topic, of all topics that had the name, from one group's ordered rows."""
    client_ids: dict[str, str] = {}
    transitions: list[RecordTransition] = []
    for row in rows:
        for record in row.payload.get("records", ()):
            if record["type"] == "ShareGroupMemberMetadata":
                client_ids[record["member_id"]] = record.get("client_id", "")
        if (row.topic, row.partition) == (topic, partition):
            entries = (entry for entry in row.transitions if entry.first_offset <= offset <= entry.last_offset)
            transitions += [_transition(row, entry, client_ids.get(entry.member_id, "")) for entry in entries]
    return transitions


def _transition(row: StateRow, entry: TransitionEntry, client_id: str) -> RecordTransition:
    return RecordTransition(
        time_ms=entry.time_ms,
        cause=entry.cause.value,
        from_state=None if entry.from_state is None else entry.from_state.name,
        to_state=entry.to_state.name,
        delivery_count=entry.delivery_count,
        member_id=entry.member_id,
        client_id=client_id,
        deadline_ms=entry.deadline_ms,
        reason=entry.reason,
        request_offset=entry.request_offset,
        leader_epoch=row.leader_epoch,
    )
