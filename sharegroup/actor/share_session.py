"""Share sessions: epochs, the partitions of a session, its parked fetch and its kept answer (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sharegroup.errors import InvalidShareSessionEpochError
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, parsed
from sharegroup.protocol.share_fetch import PartitionResponse, ShareFetchRequest

MAX_EPOCH = 2**31 - 1

PartitionKey = tuple[str, int]
"""Topic id and partition."""


def next_epoch(epoch: int) -> int:
    """The share-session epoch after this one; it wraps to 1, since 0 opens a session."""
    return 1 if epoch >= MAX_EPOCH else epoch + 1


@dataclass(frozen=True, slots=True)
class PendingFetch:
    """A fetch that waits for records.

    Attributes:
        envelope: the request, for the answer's address.
        request: its body.
        acknowledged: partition → answer to the acknowledgements that it carried.
        deadline_ms: when it is answered even without records.
        request_offset: its offset in the request log.
    """

    envelope: RequestEnvelope
    request: ShareFetchRequest
    acknowledged: dict[PartitionKey, PartitionResponse]
    deadline_ms: int
    request_offset: int


class ShareSession:
    """The leader's side of one member's share session.

    Args:
        member_id: the member.
        correlation_id: of the request that was last accepted.
    """

    def __init__(self, member_id: str, correlation_id: int) -> None:
        self.member_id = member_id
        self.correlation_id = correlation_id
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

    def accept(self, envelope: RequestEnvelope, epoch: int) -> None:
        """Go on to this request; the kept answer of the one before is given up."""
        self.epoch = epoch
        self.correlation_id = envelope.correlation_id
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
        pending = self.pending
        return [
            self.member_id,
            self.correlation_id,
            self.epoch,
            self.partitions,
            self.first_partition,
            self.kept_answer.encoded() if self.kept_answer else None,
            [pending.envelope.encoded(), pending.deadline_ms, pending.request_offset] if pending else None,
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> ShareSession:
        """The session that `to_plain` wrote."""
        session = cls(plain[0], plain[1])
        session.epoch = plain[2]
        session.partitions = [(topic_id, partition) for topic_id, partition in plain[3]]
        session.first_partition = plain[4]
        session.kept_answer = ResponseEnvelope.model_validate_json(plain[5]) if plain[5] else None
        if plain[6]:
            envelope = RequestEnvelope.model_validate_json(plain[6][0])
            # A fetch that carries acknowledgements is answered in its own batch, so a parked one has none.
            session.pending = PendingFetch(
                envelope, parsed(ShareFetchRequest, envelope.body), {}, plain[6][1], plain[6][2]
            )
        return session
