"""The last request of each member that had a durable effect, so that it is not applied twice (re-application).

After a takeover messages are applied again that were applied before it. Most of them do no harm; a release or an
unread that is applied twice would free a lock that the member, or another one, has got meanwhile. So the rows of
share-partitions name the last requests of the members that caused their transitions, and the fold keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sharegroup.core.records import PartitionKey
from sharegroup.protocol.messages import RequestEnvelope, constructed
from sharegroup.protocol.row_payloads import LastRequest
from sharegroup.protocol.share_fetch import PartitionResponse


class LastRequests(Mapping[str, LastRequest]):
    """Last requests with a durable effect, by member.

    Args:
        limit: maximum number of members; above it the oldest request is dropped.
    """

    def __init__(self, last_requests: Mapping[str, LastRequest], limit: int) -> None:
        self._requests = dict(last_requests)
        self._limit = limit

    def __getitem__(self, member_id: str) -> LastRequest:
        return self._requests[member_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def note(
        self,
        envelope: RequestEnvelope,
        share_session_epoch: int,
        responses: Mapping[PartitionKey, PartitionResponse],
    ) -> None:
        """Keep a request that had a durable effect, and the share-partitions that refused its acknowledgements."""
        member_id = envelope.member_id
        self._requests.pop(member_id, None)
        self._requests[member_id] = constructed(
            LastRequest,
            member_id=member_id,
            share_session_epoch=share_session_epoch,
            correlation_id=envelope.correlation_id,
            refused=[
                (*key, response.acknowledge_error_code)
                for key, response in responses.items()
                if response.acknowledge_error_code
            ],
        )
        while len(self._requests) > self._limit:
            del self._requests[next(iter(self._requests))]

    def repeated_by(self, envelope: RequestEnvelope, share_session_epoch: int) -> LastRequest | None:
        """Return the member's last request with a durable effect if this is it, sent or applied again."""
        last = self._requests.get(envelope.member_id)
        if last is None or last.share_session_epoch != share_session_epoch:
            return None
        return last if last.correlation_id == envelope.correlation_id else None

    def of(self, member_ids: Iterable[str]) -> list[LastRequest]:
        """Return the last requests of some members, by member id."""
        return [self._requests[member_id] for member_id in sorted(set(member_ids)) if member_id in self._requests]
