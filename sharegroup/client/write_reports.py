"""Reports of what a sink says of writes, on their way to the leader. No I/O, no clock.

A report is a fact for ever, needs no session, and may come late or twice. So each is sent until it has a response, also
through a takeover.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sharegroup.client.exchange import Backoff, Request
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement, by_partition, failed
from sharegroup.errors import ApiError, RequestTimedOutError, api_error
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.write_resolution import ResolveWriteRequest, ResolveWriteResponse


@dataclass(slots=True, eq=False)
class _Report:
    request: Request[ResolveWriteRequest]
    settles: tuple[Acknowledgement, ...]
    send_at_ms: int = 0


class WriteReports:
    """Reports without a response.

    Args:
        request_timeout_ms: time after which a report without a response is sent again.
    """

    def __init__(self, request_timeout_ms: int, correlation_ids: Iterator[int]) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._correlation_ids = correlation_ids
        self._reports: dict[int, _Report] = {}
        """Correlation id → report, in their order."""
        self._backoff = Backoff()

    def __len__(self) -> int:
        return len(self._reports)

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which `next_requests` may return a report without further input; None if it will not."""
        return max(min(self._send_times, default=0), self._backoff.until_ms) if self._reports else None

    @property
    def _send_times(self) -> Iterator[int]:
        return (report.send_at_ms for report in self._reports.values())

    def add(self, resolution: ResolveWriteRequest, settles: Sequence[Acknowledgement] = ()) -> None:
        """Send a report from now on.

        Args:
            settles: acknowledgements of the member's records that it confirms.
        """
        request = Request(next(self._correlation_ids), ApiKey.RESOLVE_WRITE, resolution)
        self._reports[request.correlation_id] = _Report(request, tuple(settles))

    def next_requests(self, now_ms: int) -> list[Request[ResolveWriteRequest]]:
        """Return the reports to send now, the first time or again."""
        if not self._reports or not self._backoff.is_over(now_ms):
            return []
        due = [report for report in self._reports.values() if report.send_at_ms <= now_ms]
        for report in due:
            report.send_at_ms = now_ms + self._request_timeout_ms
        return [report.request for report in due]

    def send_failed(self, now_ms: int) -> None:
        """Send all again after a pause: the last ones did not reach the log."""
        if self._reports:
            self.send_again()
            self._backoff.failed(now_ms)

    def send_again(self) -> None:
        """Send all again: another processor may not have had them."""
        for report in self._reports.values():
            report.send_at_ms = 0

    def receive(self, correlation_id: int, response: ResolveWriteResponse, now_ms: int) -> list[Acknowledged]:
        """Handle a response; return the results of the acknowledgements that the report confirms."""
        report = self._reports.get(correlation_id)
        if report is None:
            return []
        error: ApiError | None = None
        if response.error_code:
            error = api_error(response.error_code, response.error_message)
            if error.retriable:
                self._backoff.failed(now_ms)
                report.send_at_ms = self._backoff.until_ms
                return []
        self._backoff.succeeded()
        del self._reports[correlation_id]
        return [Acknowledged(tuple(of_partition), error) for of_partition in by_partition(report.settles).values()]

    def give_up(self) -> list[Acknowledged]:
        """Send nothing more: the sink says the same to those who look the writes up."""
        reports, self._reports = self._reports, {}
        unconfirmed = [ack for report in reports.values() for ack in report.settles]
        return failed(unconfirmed, RequestTimedOutError("The report of the write got no response before the close."))
