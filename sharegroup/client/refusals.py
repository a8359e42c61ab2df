"""Refusals of a member's requests, of which the application hears once for each cause. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from sharegroup.core.records import PartitionKey
from sharegroup.errors import ApiError, FencedMemberEpochError, UnknownMemberIdError, api_error
from sharegroup.protocol.share_fetch import ShareFetchResponse


@dataclass(frozen=True, slots=True)
class FetchCompleted:
    """The response to a fetch, apart from its acknowledgements.

    Attributes:
        refusals: errors that a retry does not resolve, by partition; None is the whole fetch.
        served: partitions with acquired records.
        is_empty: True if it acquired nothing, without an error.
    """

    refusals: Mapping[PartitionKey | None, ApiError]
    served: frozenset[PartitionKey] = frozenset()
    is_empty: bool = False


class Refusals:
    """Reports each refusal once, and again only after its partition was served, or a fetch was accepted, in between."""

    def __init__(self) -> None:
        self._waiting: deque[ApiError] = deque()
        self._reported: set[tuple[PartitionKey | None, int]] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, error: ApiError, key: PartitionKey | None = None) -> None:
        """Add a refusal of a partition, or of all requests of the member."""
        if (key, error.code) not in self._reported:
            self._reported.add((key, error.code))
            self._waiting.append(error)

    def completed(self, fetch: FetchCompleted) -> None:
        """Handle the response to a fetch."""
        accepted = {*fetch.served, None} - fetch.refusals.keys()
        self._reported = {(key, code) for key, code in self._reported if key not in accepted}
        for key, error in fetch.refusals.items():
            self.add(error, key)

    def take(self) -> ApiError | None:
        """Remove the oldest refusal that was not reported yet."""
        return self._waiting.popleft() if self._waiting else None

    def forget(self) -> None:
        """Forget the reported refusals: the subscription has changed."""
        self._waiting.clear()
        self._reported.clear()


def fetch_completed(response: ShareFetchResponse) -> FetchCompleted:
    """Return the event of the fetch itself."""
    if response.error_code:
        error = api_error(response.error_code, response.error_message)
        return FetchCompleted({} if _is_resolved(error) else {None: error})
    refusals: dict[PartitionKey | None, ApiError] = {}
    served: set[PartitionKey] = set()
    is_empty = True
    for topic in response.responses:
        for partition in topic.partitions:
            key = (topic.topic_id, partition.partition_index)
            if partition.acquired_records:
                served.add(key)
                is_empty = False
            elif partition.error_code:
                is_empty = False
                error = api_error(partition.error_code, partition.error_message)
                if not _is_resolved(error):
                    refusals[key] = error
    return FetchCompleted(refusals, frozenset(served), is_empty)


def _is_resolved(error: ApiError) -> bool:
    """Return True if a retry, or the member's next heartbeat, resolves it."""
    return error.retriable or isinstance(error, UnknownMemberIdError | FencedMemberEpochError)
