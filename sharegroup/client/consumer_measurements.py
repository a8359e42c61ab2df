"""Polls, records and acknowledgements of a share consumer as the Java client's metrics."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.measurements import MetricName, RecentValues
from sharegroup.client.message import Message
from sharegroup.client.request_measurements import FETCH_GROUP
from sharegroup.client.session_events import Acknowledged
from sharegroup.core.record_state import AcknowledgeType

CONSUMER_GROUP = "consumer-share-metrics"


class ConsumerMeasurements:
    """Takes in what a consumer does; each time is in seconds, on a clock that does not go back."""

    def __init__(self) -> None:
        self._last_poll_s: float | None = None
        self._between_polls_s = 0.0
        self._between_polls_ms = RecentValues()
        self._idle_ratio = RecentValues()
        self._records = RecentValues()
        self._bytes = RecentValues()
        self._acknowledgements = RecentValues()
        self._refused_acknowledgements = RecentValues()

    def poll_started(self, now_s: float) -> None:
        """A poll begins."""
        self._between_polls_s = 0.0 if self._last_poll_s is None else now_s - self._last_poll_s
        self._last_poll_s = now_s
        self._between_polls_ms.add(self._between_polls_s * 1000, now_s)

    def poll_ended(self, now_s: float) -> None:
        """The poll ends: all of its time was waiting, and the time since the last one was the application's."""
        poll_s = now_s - (self._last_poll_s or now_s)
        cycle_s = poll_s + self._between_polls_s
        self._idle_ratio.add(poll_s / cycle_s if cycle_s else 0.0, now_s)

    def delivered(self, messages: list[Message], size: int, now_s: float) -> None:
        """A poll read these records, of so many bytes."""
        self._records.add(len(messages), now_s)
        self._bytes.add(size, now_s)

    def settled(self, results: Iterable[Acknowledged], now_s: float) -> None:
        """Acknowledgements were answered; records that are returned unread are not among them."""
        for result in results:
            kinds = (ack for ack in result.acknowledgements if ack.acknowledge_type is not AcknowledgeType.UNREAD)
            count = sum(len(acknowledgement.offsets) for acknowledgement in kinds)
            self._acknowledgements.add(count, now_s)
            if result.error is not None:
                self._refused_acknowledgements.add(count, now_s)

    def metrics(self, now_s: float) -> dict[MetricName, float]:
        """The values of now."""
        refused, last_s = self._refused_acknowledgements, self._last_poll_s
        return {
            MetricName("last-poll-seconds-ago", CONSUMER_GROUP): -1 if last_s is None else now_s - last_s,
            MetricName("time-between-poll-avg", CONSUMER_GROUP): self._between_polls_ms.average(now_s),
            MetricName("time-between-poll-max", CONSUMER_GROUP): self._between_polls_ms.maximum(now_s),
            MetricName("poll-idle-ratio-avg", CONSUMER_GROUP): self._idle_ratio.average(now_s),
            MetricName("records-fetched-total", FETCH_GROUP): self._records.total,
            MetricName("records-fetched-rate", FETCH_GROUP): self._records.rate(now_s),
            MetricName("records-per-request-avg", FETCH_GROUP): self._records.average(now_s),
            MetricName("records-per-request-max", FETCH_GROUP): self._records.maximum(now_s),
            MetricName("bytes-consumed-total", FETCH_GROUP): self._bytes.total,
            MetricName("bytes-consumed-rate", FETCH_GROUP): self._bytes.rate(now_s),
            MetricName("fetch-size-avg", FETCH_GROUP): self._bytes.average(now_s),
            MetricName("fetch-size-max", FETCH_GROUP): self._bytes.maximum(now_s),
            MetricName("acknowledgements-send-total", FETCH_GROUP): self._acknowledgements.total,
            MetricName("acknowledgements-send-rate", FETCH_GROUP): self._acknowledgements.rate(now_s),
            MetricName("acknowledgements-error-total", FETCH_GROUP): refused.total,
            MetricName("acknowledgements-error-rate", FETCH_GROUP): refused.rate(now_s),
        }
