"""The list of all metrics in docs/metrics.md, generated from the catalogue.

`python -m sharegroup.metrics.reference > docs/metrics.md` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from sharegroup.metrics.catalogue import METRICS, WITHOUT_MEANING
from sharegroup.metrics.metric import Metric
from sharegroup.metrics.progress import LOOP_FIGURES, OBSERVATION
from sharegroup.metrics.recent_values import WINDOW_S

_INTRODUCTION = f"""# Metrics

Every metric that Kafka 4.3.1 has for share groups and their coordinators is here under Kafka's name, if it has a
meaning. A processor shows them to Prometheus at [`metrics.port`](configuration.md); `sharegroup metrics` prints those
that come from the state table and the log. [Operations](operations.md#metrics-and-alerts) says what to alert on.

**Names** in Prometheus are those that the JMX exporter's usual rules for Kafka make, so that dashboards made for Kafka
show them: a bean's type and name in small letters, `_total` in place of `PerSec`. Labels are Kafka's tags. Metrics
whose names begin with `sharegroup_` are not in Kafka.

**Values.** Counters begin at 0 when a processor starts; `rate()` gives what Kafka's meters give as rates. Averages,
maxima, rates and quantiles look back {WINDOW_S:.0f} s, maxima and quantiles over at most 1,024 values; without a value
they are NaN, as in Kafka. A summary has the last 1,024 values, however old. What a group did is counted once, after its
commit. `sharegroup metrics` counts the last 60 minutes, or as many as `--minutes` says: for `rate()`, let Prometheus
ask the processor.

**Number of series.** A metric is shown with at most `metrics.max.series` label sets. When there are more, labels are
left out from the last to the first and the values added up: share-partitions become topics, topics groups.

**Cost.** Counting costs with the ranges that a commit changed, not with records. Without `metrics.port` only the loop's
own figures are counted. The lag is read from the log when somebody asks for the metrics. `sharegroup metrics` reads the
rows of its minutes: 10,000 rows with three ranges each took 0.7 s.
"""

_PROGRESS = f"""The progress of the processor's query has the figures of the loop as observed metrics named
`{OBSERVATION}`: `query.lastProgress.observedMetrics["{OBSERVATION}"]`, and the same for a `StreamingQueryListener`.
Each is what the loop added during one micro-batch, that is, during `batch.duration.ms`.
"""

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
    """The whole of docs/metrics.md."""
    kafka = [metric for metric in METRICS if metric.kafka_name]
    own = [metric for metric in METRICS if not metric.kafka_name]
    sections = (
        (_INTRODUCTION,),
        ("## Kafka's metrics\n",),
        _table(("Kafka", "Prometheus", "Labels", "Type", "From", "Meaning here"), map(_kafka_row, kafka)),
        ("## Metrics that Kafka does not have\n",),
        _table(("Prometheus", "Labels", "Type", "From", "Meaning"), map(_row, own)),
        ("## Metrics of Kafka that have no meaning here\n",),
        _table(("Kafka", "Why"), ((f"`{name}`", why) for name, why in WITHOUT_MEANING.items())),
        ("## Names of the first text of KIP-932\n",),
        _table(("There", "Here"), _EARLIER_NAMES),
        ("## The progress of the streaming query\n", _PROGRESS),
        _table(("Figure", "Meaning"), ((f"`{name}`", meaning) for name, meaning in LOOP_FIGURES.items())),
    )
    return "\n".join(line for section in sections for line in section)


def _kafka_row(metric: Metric) -> tuple[str, ...]:
    return (f"`{metric.kafka_name}`", *_row(metric))


def _row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    kind = "untyped" if metric.kind.value == "unknown" else metric.kind.value
    return f"`{metric.name}`", labels, kind, metric.source.value, metric.meaning


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(metrics_reference())
