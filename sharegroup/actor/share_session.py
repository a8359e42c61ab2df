"""Share sessions: epochs, the partitions of a session, its parked fetch and its kept response (KIP-932)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sharegroup.actor.effects import Address
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.records import PartitionKey
from sharegroup.errors import InvalidShareSessionEpochError
from sharegroup.protocol.messages import RequestEnvelope
from sharegroup.protocol.share_fetch import PartitionResponse, next_epoch
from sharegroup.protocol.sink_writes import Sink

MAX_SESSION_PARTITIONS = 10_000
"""Partitions that a session may name: each of them is state."""
MAX_UNKNOWN_PARTITIONS = 500
"""Partitions of a session that are not led here; a member that is assigned them has been late, or early, by a few."""


class PendingFetch(NamedTuple):
    """A fetch that waits for records.

    Attributes:
        max_records: records wanted; 0 only acknowledges.
        batch_size: most records in one acquired range.
        deadline_ms: the time at which it gets its response even without records.
        acquires_until_ms: the time from which it acquires nothing, because its member no longer waits for it.
        acknowledged: partition → response to the acknowledgements that it carried. A fetch with some is completed in
            its own cut, so one that is parked has none.
        sink: the sink of its member; None without one.
    """

    address: Address
    max_records: int
    batch_size: int
    acquire_mode: AcquireMode
    deadline_ms: int
    acquires_until_ms: int
    request_offset: int
    acknowledged: dict[PartitionKey, PartitionResponse]
    sink: Sink | None = None

    def acquires_at(self, now_ms: int) -> bool:
        """Return True if the fetch may acquire records at a time."""
        return self.max_records > 0 and now_ms < self.acquires_until_ms


class ShareSession:
    """The leader's side of one member's share session.

    Attributes:
        correlation_id: of the last request.
        epoch: of the last request.
        silent_since_ms: the time at which the member last sent a request or got a response.
        partitions: the session's partitions, in the order in which they were added.
        unknown: those of them that are not led here.
        pending: the fetch that waits; `ShareSessions` sets it.
        kept_response: the response to the last request, JSON, for a repeat; None while that is pending.
        reply_partition: of the last request.
    """

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.correlation_id = 0
        self.epoch = 0
        self.silent_since_ms = 0
        self.partitions: list[PartitionKey] = []
        self.unknown: set[PartitionKey] = set()
        self.pending: PendingFetch | None = None
        self.kept_response: str | None = None
        self.reply_partition = -1
        self._position: dict[PartitionKey, int] = {}
        self._first_partition = 0

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._position

    def is_repeat(self, envelope: RequestEnvelope, epoch: int) -> bool:
        """Return True if a request is the last one again, because its response was late or lost."""
        return epoch == self.epoch and envelope.correlation_id == self.correlation_id

    def check_order(self, envelope: RequestEnvelope) -> None:
        """Check that a request was sent after the last one of the session: a member's correlation ids rise.

        An older one is a repeat that a producer appended late. It may be of an earlier session, so that its epoch fits.

        Raises:
            InvalidShareSessionEpochError: the request is older.
        """
        if envelope.correlation_id < self.correlation_id:
            raise InvalidShareSessionEpochError(
                f"Request {envelope.correlation_id} of member {self.member_id} is older than request "
                f"{self.correlation_id}, the last one of its share session.",
                "Send requests with rising correlation ids.",
            )

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
        """Make this request the last one of the session, and drop the kept response of the one before."""
        self.epoch = epoch
        self.correlation_id = envelope.correlation_id
        self.reply_partition = envelope.reply_partition
        self.silent_since_ms = now_ms
        self.kept_response = None

    def change_partitions(self, added: Iterable[PartitionKey], forgotten: Iterable[PartitionKey]) -> None:
        """Add partitions to the session and remove others; the cost grows with the added ones when none is removed."""
        for key in added:
            if key not in self._position:
                self._position[key] = len(self.partitions)
                self.partitions.append(key)
        removed = {key for key in forgotten if key in self._position}
        if removed:
            self.partitions = [key for key in self.partitions if key not in removed]
            self._position = {key: position for position, key in enumerate(self.partitions)}
            self.unknown -= removed

    def rotated(self, keys: Collection[PartitionKey]) -> Iterator[PartitionKey]:
        """Yield the session's partitions that are in `keys`, in this response's order.

        The next response begins one partition further on, so that none starves. The cost grows with the smaller set.
        """
        count = len(self.partitions)
        start = self._first_partition % count if count else 0
        if len(keys) * 4 < count:
            mine = [key for key in keys if key in self._position]
            yield from sorted(mine, key=lambda key: (self._position[key] - start) % count)
            return
        for turn in range(count):
            key = self.partitions[(start + turn) % count]
            if key in keys:
                yield key

    def rotate(self) -> None:
        """Start the next response one partition further on."""
        self._first_partition += 1
