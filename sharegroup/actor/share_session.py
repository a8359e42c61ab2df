"""Share sessions: epochs, the partitions of a session, its parked fetch and its kept answer (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sharegroup.core.acquisition import AcquireMode
from sharegroup.errors import InvalidShareSessionEpochError
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope
from sharegroup.protocol.share_fetch import PartitionResponse

MAX_EPOCH = 2**31 - 1
MAX_SESSION_PARTITIONS = 10_000
"""Partitions that a session may name; those that are not led here cost state and answers as well."""

PartitionKey = tuple[str, int]
"""Topic id and partition."""


def next_epoch(epoch: int) -> int:
    """The share-session epoch after this one; it wraps to 1, since 0 opens a session."""
    return 1 if epoch >= MAX_EPOCH else epoch + 1


@dataclass(frozen=True, slots=True)
class PendingFetch:
    """A fetch that waits for records.

    Attributes:
        envelope: the request without its body, for the answer's address.
        max_records: records wanted; 0 only acknowledges.
        batch_size: most records in one acquired range.
        acquire_mode: how strict `max_records` is.
        deadline_ms: when it is answered even without records.
        request_offset: its offset in the request log.
        acknowledged: partition → answer to the acknowledgements that it carried. A fetch with some is answered in
            its own batch, so one that is parked has none.
    """

    envelope: RequestEnvelope
    max_records: int
    batch_size: int
    acquire_mode: AcquireMode
    deadline_ms: int
    request_offset: int
    acknowledged: dict[PartitionKey, PartitionResponse] = field(default_factory=dict)

    def to_plain(self) -> list[Any]:
        """Lists, numbers and strings that hold the fetch while it is parked."""
        return [
            self.envelope.encoded(),
            self.max_records,
            self.batch_size,
            self.acquire_mode.value,
            self.deadline_ms,
            self.request_offset,
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> PendingFetch:
        """The fetch that `to_plain` wrote."""
        envelope, max_records, batch_size, acquire_mode, deadline_ms, request_offset = plain
        return cls(
            RequestEnvelope.model_validate_json(envelope),
            max_records,
            batch_size,
            AcquireMode(acquire_mode),
            deadline_ms,
            request_offset,
        )


class ShareSession:
    """The leader's side of one member's share session.

    Args:
        member_id: the member.
    """

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.correlation_id = 0
        self.last_request_ms = 0
        self.epoch = 0
        self.partitions: list[PartitionKey] = []
        self.first_partition = 0
        self.pending: PendingFetch | None = None
        self.kept_answer: ResponseEnvelope | None = None

    def is_repeat(self, envelope: RequestEnvelope, epoch: int) -> bool:
        """Whether a request is the last one again, because its answer was late or lost."""
        return epoch == self.epoch and envelope.correlation_id == self.correlation_id

    def check_epoch(self, epoch: int) -> None:
        """Check that a request is the next one of the session.

        Raises:
            InvalidShareSessionEpochError: the epoch is not the next one.
        """
        expected = next_epoch(self.epoch)
        if epoch != expected:
            raise InvalidShareSessionEpochError(
                f"The share session epoch {epoch} of member {self.member_id} is not the expected {expected}.",
                "Open the session again with epoch 0.",
            )

    def accept(self, envelope: RequestEnvelope, epoch: int, now_ms: int) -> None:
        """Go on to this request; the kept answer of the one before is given up."""
        self.epoch = epoch
        self.correlation_id = envelope.correlation_id
        self.last_request_ms = now_ms
        self.kept_answer = None

    def change_partitions(self, added: Iterable[PartitionKey], forgotten: Iterable[PartitionKey]) -> None:
        """Add partitions to the session and remove others."""
        known = dict.fromkeys(self.partitions)
        known.update(dict.fromkeys(added))
        for key in forgotten:
            known.pop(key, None)
        self.partitions = list(known)

    def rotated_partitions(self) -> list[PartitionKey]:
        """The partitions in this answer's order; the next answer begins one further on, so that none starves."""
        if not self.partitions:
            return []
        start = self.first_partition % len(self.partitions)
        return self.partitions[start:] + self.partitions[:start]

    def to_plain(self) -> list[Any]:
        """Lists, numbers and strings that hold the session."""
        return [
            self.member_id,
            self.correlation_id,
            self.last_request_ms,
            self.epoch,
            self.partitions,
            self.first_partition,
            self.kept_answer.encoded() if self.kept_answer else None,
            self.pending.to_plain() if self.pending else None,
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> ShareSession:
        """The session that `to_plain` wrote."""
        member_id, correlation_id, last_request_ms, epoch, partitions, first_partition, kept_answer, pending = plain
        session = cls(member_id)
        session.correlation_id = correlation_id
        session.last_request_ms = last_request_ms
        session.epoch = epoch
        session.partitions = [(topic_id, partition) for topic_id, partition in partitions]
        session.first_partition = first_partition
        session.kept_answer = ResponseEnvelope.model_validate_json(kept_answer) if kept_answer else None
        session.pending = PendingFetch.from_plain(pending) if pending else None
        return session
