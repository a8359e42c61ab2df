"""The metrics of a live auditor, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from sharegroup.errors import ConfigurationError

FINDINGS = "sharegroup_live_audit_findings_total"
COMMIT_ID = "sharegroup_live_audit_commit_id"
DELAY = "sharegroup_live_audit_delay_seconds"
DELIVERIES = "sharegroup_live_audit_deliveries_total"
REDELIVERIES = "sharegroup_live_audit_redeliveries_total"
IN_FLIGHT = "sharegroup_live_audit_in_flight_seconds_total"
ENDED = "sharegroup_live_audit_ended_deliveries_total"
OLDEST = "sharegroup_live_audit_oldest_in_flight_seconds"

LIVE_AUDIT_METRICS: Mapping[str, str] = {
    FINDINGS: "Findings, by `invariant`.",
    COMMIT_ID: "The last commit whose findings are written.",
    DELAY: "Age of that commit when they were: from its time in the log to their time in the table.",
    DELIVERIES: "Records acquired, by `group`, `topic` and `partition`, up to the last minute that is written.",
    REDELIVERIES: "Those of them that had been delivered before.",
    ENDED: "Deliveries that ended, in any way but unread.",
    IN_FLIGHT: "Time from acquisition to end, of all of them together.",
    OLDEST: "Time since the first delivery of the oldest record in flight, at the end of the last minute.",
}
"""Name → meaning."""

_LABELS = ("group", "topic", "partition")


class LiveAuditMetrics:
    """Counters and gauges of one live auditor.

    Args:
        max_series: label sets of one metric; share-partitions beyond it are counted under empty topic and partition.
    """

    def __init__(self, max_series: int) -> None:
        self.registry = CollectorRegistry()
        self._max_series = max_series
        self._known: set[tuple[str, str, str]] = set()
        self._findings = Counter(FINDINGS, LIVE_AUDIT_METRICS[FINDINGS], ["invariant"], registry=self.registry)
        self._commit_id = self._gauge(COMMIT_ID)
        self._delay = self._gauge(DELAY)
        self._oldest = self._gauge(OLDEST, _LABELS)
        self._counters = {
            name: Counter(name, LIVE_AUDIT_METRICS[name], _LABELS, registry=self.registry)
            for name in (DELIVERIES, REDELIVERIES, ENDED, IN_FLIGHT)
        }

    def add_finding(self, finding: Mapping[str, Any]) -> None:
        """Count a finding."""
        self._findings.labels(finding["invariant"]).inc()

    def add_minute(self, minute: Mapping[str, Any]) -> None:
        """Count a minute of a share-partition."""
        labels = (minute["group_id"], minute["topic"], str(minute["partition"]))
        if labels not in self._known and len(self._known) >= self._max_series:
            labels = (minute["group_id"], "", "")
        self._known.add(labels)
        self._counters[DELIVERIES].labels(*labels).inc(minute["deliveries"])
        self._counters[REDELIVERIES].labels(*labels).inc(minute["redeliveries"])
        self._counters[ENDED].labels(*labels).inc(minute["ended_deliveries"])
        self._counters[IN_FLIGHT].labels(*labels).inc(minute["in_flight_ms"] / 1_000)
        self._oldest.labels(*labels).set(minute["oldest_in_flight_ms"] / 1_000)

    def set_progress(self, progress: Mapping[str, Any], now_ms: int) -> None:
        """Set the last commit whose findings are written."""
        self._commit_id.set(progress["commit_id"])
        self._delay.set(max(now_ms - progress["time_ms"], 0) / 1_000)

    def serve(self, host: str, port: int) -> None:
        """Serve `GET /metrics` from a thread of its own until the process ends.

        Raises:
            ConfigurationError: nobody can listen there.
        """
        try:
            start_http_server(port, host, self.registry)
        except OSError as error:
            raise ConfigurationError(
                f"Port {port} of {host} cannot be listened on: {error.strerror}.", "Give --metrics-port a free port."
            ) from error

    def _gauge(self, name: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, LIVE_AUDIT_METRICS[name], labels, registry=self.registry)
