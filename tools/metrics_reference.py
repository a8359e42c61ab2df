"""The list of all metrics in docs/metrics.md, generated from the catalogue.

`make docs` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sharegroup.metrics.catalogue import METRICS, Metric
from sharegroup.metrics.exposition import WORKER_COUNTERS
from sharegroup.metrics.live_audit_metrics import LIVE_AUDIT_METRICS
from sharegroup.metrics.processor_metrics import LOOP_FIGURES, OBSERVATION
from sharegroup.metrics.registry import WINDOW_S
from tools.markdown import table

_INTRODUCTION = f"""# Metrics

Every metric that Kafka 4.3.1 has for share groups and their coordinators is here under Kafka's name, if it has a
meaning, and of Kafka 4.4 those of dead-letter queues. A processor shows them to Prometheus at
[`metrics.port`](configuration.md); `sharegroup metrics` prints those that come from the state table and the log.
[Operations](operations.md#metrics-and-alerts) says what to alert on.

**Names** in Prometheus are those that the JMX exporter's usual rules for Kafka make, so that dashboards made for Kafka
show them: a bean's type and name in small letters, `_total` in place of `PerSec`. Labels are Kafka's tags. Metrics
whose names begin with `sharegroup_` are not in Kafka.

**Values.** Counters begin at 0 when a processor starts; `rate()` gives what Kafka's meters give as rates. Averages,
maxima, rates and quantiles cover the last {WINDOW_S:.0f} s, maxima and quantiles over at most 1,024 values; without a
value they are NaN, as in Kafka. A summary has the last 1,024 values, however old. The actions of a group are counted
once, after their commit. `sharegroup metrics` counts the last 60 minutes, or as many as `--minutes` says: for
`rate()`, let Prometheus ask the processor.

**Number of series.** A metric is shown with at most `metrics.max.series` label sets. When there are more, labels are
left out from the last to the first and the values added up: share-partitions become topics, topics groups. Requests are
counted for all topics, without a label, and for each: to add them up, choose those with a `topic`, or `topic=""`.

**Cost.** Counting costs with the ranges that a commit changed, not with records. Without `metrics.port` only the loop's
own figures are counted. With it, a response costs 16 µs of CPU and a row 70 µs, two thirds of them for the state that
the gauges are taken from: 5 % of a core at 1,000 requests/s of which half are durable. The lag is read from the log
when somebody asks for the metrics. `sharegroup metrics` reads the rows of its minutes: 10,000 rows with three ranges
each took 0.7 s.
"""

_PROGRESS = f"""The progress of the processor's query has the figures of the loop as observed metrics named
`{OBSERVATION}`: `query.lastProgress.observedMetrics["{OBSERVATION}"]`, and the same for a `StreamingQueryListener`
in `processor.session.streams`, where `processor` is the `ProcessorQuery`: the query has a session of its own.
Each is what the loop added during one micro-batch, that is, during `batch.duration.ms`.
"""

_LIVE_AUDIT = """The [live auditor](live_audit.md) shows these at the port of its flag `--metrics-port`.
"""

_WORKER = """A Spark worker shows these at [`worker.metrics.port`](configuration.md); each has the label `group`.
"""

WITHOUT_MEANING: dict[str, str] = {
    "kafka.server:type=ShareGroupMetrics,name=RequestTopicPartitionsFetchRatio": "There is no fetch lock: a fetch "
    "sees all its share-partitions, so the ratio would always be 100.",
    "kafka.server:type=ShareGroupMetrics,name=TopicPartitionsAcquireTimeMs": "There is no fetch lock to wait for.",
    "kafka.server:type=SharePartitionMetrics,name=FetchLockTimeMs": "There is no fetch lock: one actor serves all "
    "fetches of a group.",
    "kafka.server:type=SharePartitionMetrics,name=FetchLockRatio": "The same.",
    "kafka.server:type=share-coordinator-metrics last-pruned-offset": "There is no state topic; the state table is "
    "pruned by maintenance.",
    "kafka.server:type=share-coordinator-metrics num-partitions": "Coordinators are not divided among partitions of a "
    "state topic; `sharegroup_quarantined` says which groups stand still.",
    "kafka.server:type=share-coordinator-metrics event-purgatory-time-ms": "No event waits in a purgatory for "
    "replicas; a commit is durable when it ends.",
    "kafka.server:type=share-coordinator-metrics batch-linger-time-ms": "A cut takes what waits, and never lingers.",
    "kafka.server:type=share-coordinator-metrics batch-buffer-cache-size-bytes": "There is no buffer cache.",
    "kafka.server:type=share-coordinator-metrics batch-buffer-cache-discard-count": "There is no buffer cache.",
    "kafka.server:type=share-coordinator-metrics background-queue-time-ms": "There are no background threads.",
    "kafka.server:type=share-coordinator-metrics background-processing-time-ms": "There are no background threads.",
    "kafka.server:type=share-coordinator-metrics background-thread-idle-ratio-avg": "There are no background threads.",
    "kafka.server:type=group-coordinator-metrics (of the coordinator's runtime)": "Both coordinators commit together: "
    "the figures of `share-coordinator-metrics` are for both.",
    "kafka.server:type=group-coordinator-metrics offset-commit, offset-expiration, offset-deletion": "Share groups "
    "commit no offsets.",
}
"""Metric of Kafka's share groups and coordinators that has no meaning here → why."""

_EARLIER_NAMES = (
    ("share-acknowledgement-count, -rate", "`RecordAcknowledgementsPerSec`, the sum over `ackType`"),
    ("record-acknowledgement-count, -rate by ack-type", "`RecordAcknowledgementsPerSec` by `ackType`"),
    ("partition-load-time-avg, -max", "`PartitionLoadTimeMs`; and of the same name in `share-coordinator-metrics`"),
    ("rebalance-count, -rate", "`share-group-rebalance-count`, `-rate`"),
    ("group-count by state", "`share-group-count` by `state`"),
    ("num-partitions", "the same"),
)
"""Name in the first text of KIP-932 → name here."""


def metrics_reference() -> str:
    """Return the text of docs/metrics.md."""
    kafka = [metric for metric in METRICS if metric.kafka_name]
    own = [metric for metric in METRICS if not metric.kafka_name]
    sections = (
        (_INTRODUCTION,),
        ("## Kafka's metrics\n",),
        table(("Kafka", "Prometheus", "Labels", "Type", "From", "Meaning here"), map(_kafka_row, kafka)),
        ("## Metrics that Kafka does not have\n",),
        table(("Prometheus", "Labels", "Type", "From", "Meaning"), map(_row, own)),
        ("## Metrics of Kafka that have no meaning here\n",),
        table(("Kafka", "Why"), ((f"`{name}`", why) for name, why in WITHOUT_MEANING.items())),
        ("## Names of the first text of KIP-932\n",),
        table(("There", "Here"), _EARLIER_NAMES),
        ("## Metrics of a Spark worker\n", _WORKER),
        table(("Prometheus", "Meaning"), ((f"`{name}`", text) for name, text in WORKER_COUNTERS.items())),
        ("## Metrics of the live auditor\n", _LIVE_AUDIT),
        table(("Prometheus", "Meaning"), ((f"`{name}`", text) for name, text in LIVE_AUDIT_METRICS.items())),
        ("## The progress of the streaming query\n", _PROGRESS),
        table(("Figure", "Meaning"), ((f"`{name}`", meaning) for name, meaning in LOOP_FIGURES.items())),
    )
    return "\n".join(line for section in sections for line in section)


def _kafka_row(metric: Metric) -> tuple[str, ...]:
    return (f"`{metric.kafka_name}`", *_row(metric))


def _row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    kind = "untyped" if metric.kind.value == "unknown" else metric.kind.value
    return f"`{metric.name}`", labels, kind, metric.source.value, metric.meaning


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(metrics_reference(), encoding="utf-8")
