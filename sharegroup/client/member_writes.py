"""A member's part of the open writes of its group: what it looks up in its sink, and its reports. No I/O, no clock.

Any response to a fetch may ask the member to look writes up, also one without records. So a member with a sink that
fetches nothing, since its application is busy or there is none, asks from time to time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.write_reports import WriteReports
from sharegroup.protocol.sink_writes import UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest

_ASK_INTERVAL_MS = 5_000
"""A member with a sink that fetches no records asks after this time for writes that it is to look up."""


class MemberWrites:
    """Writes to look up, each once until it is handed out again, and reports of what the sink says of writes.

    Attributes:
        reports: reports on their way to the leader.

    Args:
        request_timeout_ms: time after which a report without a response is sent again.
        now_ms: the present time, on a monotonic clock.
    """

    def __init__(self, request_timeout_ms: int, correlation_ids: Iterator[int], now_ms: int) -> None:
        self.reports = WriteReports(request_timeout_ms, correlation_ids)
        self._unresolved: dict[int, UnresolvedWrite] = {}
        """Version → write that the member is to look up."""
        self._ask_at_ms = now_ms

    @property
    def has_unresolved(self) -> bool:
        """True if writes wait to be looked up."""
        return bool(self._unresolved)

    def add_unresolved(self, writes: Iterable[UnresolvedWrite]) -> None:
        """Add writes to look up, which the leader has asked for, or the member has begun."""
        self._unresolved.update((write.version, write) for write in writes)

    def take_unresolved(self) -> list[UnresolvedWrite]:
        """Return the writes to look up, each once until it is handed out again."""
        taken, self._unresolved = self._unresolved, {}
        return list(taken.values())

    def report(self, resolution: ResolveWriteRequest, settles: Iterable[Acknowledgement] = ()) -> None:
        """Report what the sink says of a write, until there is a response.

        Args:
            settles: acknowledgements of the member's records that it confirms; they are among the results then.
        """
        self._unresolved.pop(resolution.version, None)
        self.reports.add(resolution, tuple(settles))

    def fetched(self, now_ms: int) -> None:
        """Record that a fetch is sent, which asks as well."""
        self._ask_at_ms = now_ms + _ASK_INTERVAL_MS

    def asks_at_ms(self, may_ask_at_ms: int) -> int:
        """Return when a fetch without records asks for writes to look up, if no other fetch is sent.

        Args:
            may_ask_at_ms: the time from which it may be sent.
        """
        return max(self._ask_at_ms, may_ask_at_ms)
