"""Kafka's own ShareConsumerPerformance: a Java share consumer that takes a topic and does no work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from benchmarks.broker import JARS
from benchmarks.share_clients import start_at_earliest
from tests.support import leash

_TIMEOUT_S = 1_800.0
_IDLE_TIMEOUT_MS = 60_000
_DATES = "%Y-%m-%d %H:%M:%S:%f"
_TOOL = "org.apache.kafka.tools.ShareConsumerPerformance"


@dataclass(frozen=True, slots=True)
class Progress:
    """Records that were taken until a time.

    Attributes:
        time_s: when, by the tool's clock.
        records: how many in all.
    """

    time_s: float
    records: int


@dataclass(frozen=True, slots=True)
class JavaRun:
    """The report of the tool.

    Attributes:
        progress: the records by time, from the first report with records to the end.
    """

    records: int
    progress: tuple[Progress, ...]

    @property
    def rate(self) -> float:
        """Records a second from the first report with records on: joining is not in it."""
        first, last = self.progress[0], self.progress[-1]
        duration_s = last.time_s - first.time_s
        return (last.records - first.records) / duration_s if duration_s > 0 else float("nan")


def take_by_java(
    bootstrap_servers: str,
    topic: str,
    record_count: int,
    config: Mapping[str, str] | None = None,
    interval_ms: int = 100,
) -> JavaRun:
    """Let one Java share consumer of a new group take the topic.

    Args:
        interval_ms: time from one report of its progress to the next.

    Raises:
        RuntimeError: it failed, or did not take all records.
    """
    group_id = f"java-{uuid4().hex[:8]}"
    start_at_earliest(bootstrap_servers, group_id)
    command = [
        *(_java(), "-Dlog4j2.level=ERROR", "-cp", f"{JARS}/*", _TOOL),
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--group", group_id),
        *("--num-records", str(record_count), "--timeout", str(_IDLE_TIMEOUT_MS)),
        *("--show-detailed-stats", "--reporting-interval", str(interval_ms)),
        *(word for key, value in (config or {}).items() for word in ("--command-property", f"{key}={value}")),
    ]
    run = leash.run(command, _TIMEOUT_S)
    java_run = parsed_run(run.stdout)
    if run.returncode or java_run is None or java_run.records < record_count:
        raise RuntimeError(f"{_TOOL} ended with code {run.returncode}:\n{run.stdout[-2_000:]}\n{run.stderr[-2_000:]}")
    return java_run


def parsed_run(output: str) -> JavaRun | None:
    """Parse what the tool printed with detailed statistics; None if the report is not whole."""
    progress: list[Progress] = []
    total = None
    for line in output.splitlines():
        fields = line.removesuffix(" for share consumer 1").split(", ")
        if len(fields) != 7 or not fields[0][:1].isdigit():
            continue
        # Microseconds from the tool's milliseconds: strptime pads the fraction on the right.
        reported = Progress(datetime.strptime(fields[1], _DATES).timestamp(), int(fields[5]))
        if line.endswith("consumer 1"):
            progress.append(reported)
        else:
            total = reported
    if total is None:
        return None
    return JavaRun(total.records, (*progress, total))


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"
