"""All metrics: Kafka's, under their names, where they have a meaning here; and a few that Kafka does not have.

They are those of Kafka 4.3.1, and of 4.4 those of the dead-letter queue (KIP-1191).

Classes of Kafka: ShareGroupMetrics, SharePartitionMetrics, ShareSessionCache, BrokerTopicMetrics, DelayedShareFetch,
GroupCoordinatorMetrics, ShareCoordinatorMetrics, CoordinatorRuntimeMetricsImpl (KIP-932, "Metrics").
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kind of a metric; the names are Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    UNTYPED = "unknown"
    """A counter whose Kafka name has another ending than `_total`."""


class Source(StrEnum):
    """The source of the values."""

    ROWS = "rows of the state table"
    STATE = "the folded state and the ends of the logs"
    RESPONSES = "the actors' responses"
    PROCESSOR = "the processor"


SHARE_PARTITION = ("group", "topic", "partition")
"""Labels of the metrics of each share-partition."""
TOPIC = ("topic",)
"""Label of the metrics of each topic, which Kafka also has without it, for all topics."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric; there is one object of each, in the catalogue, so it is looked up by identity.

    Attributes:
        name: the Prometheus name.
        kafka_name: the object name and attribute of Kafka; "" for one that Kafka does not have.
        short_name: Kafka's own name, or ours without the prefix.
        labels: Kafka's tags.
        has_total: True if a series without labels counts everything, and the labelled ones a part each.
    """

    name: str
    kafka_name: str
    short_name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    source: Source
    has_total: bool = False

    @property
    def total(self) -> tuple[str, ...]:
        """The labels of the series that counts everything."""
        return ("",) * len(self.labels)


def yammer(
    kind: Kind,
    type_: str,
    name: str,
    labels: tuple[str, ...],
    source: Source,
    meaning: str,
    has_total: bool = False,
) -> Metric:
    """Return a metric that Kafka has as a bean; the Prometheus name is that of the JMX exporter's Kafka rules."""
    prometheus_name = f"kafka_server_{type_}_{name.removesuffix('PerSec')}".lower()
    if kind is Kind.COUNTER:
        prometheus_name += "_total"
    kafka_name = f"kafka.server:type={type_},name={name}"
    return Metric(prometheus_name, kafka_name, name, kind, labels, meaning, source, has_total)


def attribute(kind: Kind, type_: str, name: str, labels: tuple[str, ...], source: Source, meaning: str) -> Metric:
    """Return a metric that Kafka has as an attribute of a bean; the Prometheus name is the JMX exporter's default."""
    prometheus_name = f"kafka_server_{type_}_{name}".replace("-", "_")
    return Metric(prometheus_name, f"kafka.server:type={type_} {name}", name, kind, labels, meaning, source)


def own(kind: Kind, name: str, labels: tuple[str, ...], source: Source, meaning: str) -> Metric:
    """Return a metric that Kafka does not have."""
    prometheus_name = f"sharegroup_{name}" + ("_total" if kind is Kind.COUNTER else "")
    return Metric(prometheus_name, "", name, kind, labels, meaning, source)


_GROUPS = "group-coordinator-metrics"
_SHARES = "share-coordinator-metrics"

RECORD_ACKNOWLEDGEMENTS = yammer(
    Kind.COUNTER,
    "ShareGroupMetrics",
    "RecordAcknowledgementsPerSec",
    ("ackType",),
    Source.ROWS,
    "Records acknowledged, by type; those that were refused do not count.",
)
DEAD_LETTER_QUEUE_RECORD_COUNT = yammer(
    Kind.COUNTER,
    "ShareGroupMetrics",
    "DeadLetterQueueRecordCount",
    ("group",),
    Source.PROCESSOR,
    "Dead-letter records that were appended.",
)
DEAD_LETTER_QUEUE_TOTAL_PRODUCE_REQUESTS = yammer(
    Kind.COUNTER,
    "ShareGroupMetrics",
    "DeadLetterQueueTotalProduceRequestsPerSec",
    ("group",),
    Source.PROCESSOR,
    "Appends to the dead-letter topic; one that has records of several groups counts for each.",
)
DEAD_LETTER_QUEUE_FAILED_PRODUCE_REQUESTS = yammer(
    Kind.COUNTER,
    "ShareGroupMetrics",
    "DeadLetterQueueFailedProduceRequestsPerSec",
    ("group",),
    Source.PROCESSOR,
    "Such appends that failed.",
)
PARTITION_LOAD_TIME = yammer(
    Kind.SUMMARY,
    "ShareGroupMetrics",
    "PartitionLoadTimeMs",
    (),
    Source.PROCESSOR,
    "Time to load the share-partitions, in ms: all are loaded together when a processor starts.",
)
ACQUISITION_LOCK_TIMEOUT = yammer(
    Kind.COUNTER,
    "SharePartitionMetrics",
    "AcquisitionLockTimeoutPerSec",
    SHARE_PARTITION,
    Source.ROWS,
    "Records whose acquisition lock ended before they were acknowledged.",
)
IN_FLIGHT_MESSAGE_COUNT = yammer(
    Kind.GAUGE,
    "SharePartitionMetrics",
    "InFlightMessageCount",
    SHARE_PARTITION,
    Source.STATE,
    "Offsets from the start offset (SPSO) to the last one that was ever acquired.",
)
IN_FLIGHT_BATCH_COUNT = yammer(
    Kind.GAUGE,
    "SharePartitionMetrics",
    "InFlightBatchCount",
    SHARE_PARTITION,
    Source.STATE,
    "Runs in flight: touching offsets with one state, delivery count, member and deadline.",
)
IN_FLIGHT_BATCH_MESSAGE_COUNT = yammer(
    Kind.SUMMARY,
    "SharePartitionMetrics",
    "InFlightBatchMessageCount",
    SHARE_PARTITION,
    Source.ROWS,
    "Records in each range that came in flight.",
)
SHARE_SESSIONS_COUNT = yammer(
    Kind.GAUGE, "ShareSessionCache", "ShareSessionsCount", (), Source.RESPONSES, "Open share sessions."
)
SHARE_PARTITIONS_COUNT = yammer(
    Kind.GAUGE,
    "ShareSessionCache",
    "SharePartitionsCount",
    (),
    Source.RESPONSES,
    "Share-partitions in open share sessions, counted in each.",
)
SHARE_SESSION_EVICTIONS = yammer(
    Kind.COUNTER,
    "ShareSessionCache",
    "ShareSessionEvictionsPerSec",
    (),
    Source.RESPONSES,
    "Share sessions that ended because their member was silent for too long.",
)
TOTAL_SHARE_FETCH_REQUESTS = yammer(
    Kind.COUNTER,
    "BrokerTopicMetrics",
    "TotalShareFetchRequestsPerSec",
    TOPIC,
    Source.RESPONSES,
    "ShareFetch requests that were completed; with a topic, those that got records or an error of it.",
    has_total=True,
)
FAILED_SHARE_FETCH_REQUESTS = yammer(
    Kind.COUNTER,
    "BrokerTopicMetrics",
    "FailedShareFetchRequestsPerSec",
    TOPIC,
    Source.RESPONSES,
    "ShareFetch requests that were completed with an error, for all or some share-partitions; with a topic, of it.",
    has_total=True,
)
TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS = yammer(
    Kind.COUNTER,
    "BrokerTopicMetrics",
    "TotalShareAcknowledgementRequestsPerSec",
    TOPIC,
    Source.RESPONSES,
    "Requests with acknowledgements that were completed: ShareAcknowledge, and ShareFetch that carried some; with a "
    "topic, those of its records.",
    has_total=True,
)
FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS = yammer(
    Kind.COUNTER,
    "BrokerTopicMetrics",
    "FailedShareAcknowledgementRequestsPerSec",
    TOPIC,
    Source.RESPONSES,
    "Requests with acknowledgements of which all or some were refused; with a topic, those of its records.",
    has_total=True,
)
EXPIRED_SHARE_FETCHES = yammer(
    Kind.COUNTER,
    "DelayedShareFetchMetrics",
    "ExpiresPerSec",
    (),
    Source.RESPONSES,
    "ShareFetch requests that were completed without records because they had waited long enough.",
)
GROUP_COUNT = attribute(Kind.GAUGE, _GROUPS, "group-count", ("protocol",), Source.STATE, "Share groups.")
SHARE_GROUP_COUNT = attribute(
    Kind.GAUGE, _GROUPS, "share-group-count", ("state",), Source.STATE, "Share groups, by state."
)
SHARE_GROUP_REBALANCE_COUNT = attribute(
    Kind.UNTYPED, _GROUPS, "share-group-rebalance-count", (), Source.ROWS, "Times that a group epoch rose."
)
SHARE_GROUP_REBALANCE_RATE = attribute(
    Kind.GAUGE,
    _GROUPS,
    "share-group-rebalance-rate",
    (),
    Source.PROCESSOR,
    "Times a second that a group epoch rose, in the last minute.",
)
NUM_PARTITIONS = attribute(
    Kind.GAUGE,
    _GROUPS,
    "num-partitions",
    ("protocol",),
    Source.STATE,
    "Share-partitions that have their state (KIP-932; Kafka 4.3.1 counts partitions of its own topics here).",
)
WRITE_TOTAL = attribute(
    Kind.COUNTER,
    _SHARES,
    "write-total",
    (),
    Source.ROWS,
    "Writes of share-partition state that Kafka would persist: ShareUpdate and ShareSnapshot rows.",
)
WRITE_RATE = attribute(
    Kind.GAUGE, _SHARES, "write-rate", (), Source.PROCESSOR, "Such writes a second, in the last minute."
)
WRITE_LATENCY_AVG = attribute(
    Kind.GAUGE,
    _SHARES,
    "write-latency-avg",
    (),
    Source.PROCESSOR,
    "Average time of a commit to the state table in the last minute, in ms.",
)
WRITE_LATENCY_MAX = attribute(
    Kind.GAUGE,
    _SHARES,
    "write-latency-max",
    (),
    Source.PROCESSOR,
    "Longest time of a commit to the state table in the last minute, in ms.",
)
BATCH_FLUSH_RATE = attribute(
    Kind.GAUGE,
    _SHARES,
    "batch-flush-rate",
    (),
    Source.PROCESSOR,
    "Commits to the state table a second, in the last minute.",
)
EVENT_QUEUE_SIZE = attribute(
    Kind.GAUGE,
    _SHARES,
    "event-queue-size",
    (),
    Source.STATE,
    "Messages of the request log that are not applied yet.",
)
EVENT_QUEUE_TIME = "event-queue-time-ms"
EVENT_PROCESSING_TIME = "event-processing-time-ms"
BATCH_FLUSH_TIME = "batch-flush-time-ms"
LATENCIES = {
    EVENT_QUEUE_TIME: "the oldest message of each group waited from its append to its cut",
    EVENT_PROCESSING_TIME: "a commit took, from its first message to its last response",
    BATCH_FLUSH_TIME: "a commit to the state table took",
}
"""Name of a latency → its meaning; Kafka has five figures of each."""
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
"""Suffix of a latency's name → quantile."""
LATENCY_METRICS = {
    (name, suffix): attribute(
        Kind.GAUGE,
        _SHARES,
        f"{name}-{suffix}",
        (),
        Source.PROCESSOR,
        f"How long {what}, in ms: {'the longest' if suffix == 'max' else suffix} in the last minute.",
    )
    for name, what in LATENCIES.items()
    for suffix in QUANTILES
}
THREAD_IDLE_RATIO_AVG = attribute(
    Kind.GAUGE,
    _SHARES,
    "thread-idle-ratio-avg",
    (),
    Source.PROCESSOR,
    "Part of the last minute in which the loop had nothing to do, 0 to 1.",
)
PARTITION_LOAD_TIME_MAX = attribute(
    Kind.GAUGE,
    _SHARES,
    "partition-load-time-max",
    (),
    Source.PROCESSOR,
    "Time that this processor took to load all share-partitions when it started, in ms.",
)
PARTITION_LOAD_TIME_AVG = attribute(
    Kind.GAUGE, _SHARES, "partition-load-time-avg", (), Source.PROCESSOR, "The same: there is one load."
)

LAG = own(
    Kind.GAUGE,
    "lag",
    SHARE_PARTITION,
    Source.STATE,
    "Records that are not finished (KIP-1226): end offset - start offset - finished records above the start offset.",
)
LOCKED_RECORDS = own(Kind.GAUGE, "locked_records", SHARE_PARTITION, Source.STATE, "Records that members hold.")
WINDOW_RECORDS = own(
    Kind.GAUGE,
    "window_records",
    SHARE_PARTITION,
    Source.STATE,
    "Records that are acquired, or available and not delayed; share.partition.max.record.locks bounds them.",
)
SPAN_FULL = own(
    Kind.GAUGE,
    "span_full",
    SHARE_PARTITION,
    Source.STATE,
    "1 while no new record is acquired, because the offsets between the start offset and the last one in flight, or "
    "the runs in flight, have reached their bound; 0 else.",
)
SUSPECT_RECORDS = own(
    Kind.GAUGE,
    "suspect_records",
    SHARE_PARTITION,
    Source.STATE,
    "Records in flight whose last delivery ended without an acknowledgement: they are delivered apart, in portions.",
)
ARCHIVING_RECORDS = own(
    Kind.GAUGE,
    "archiving_records",
    SHARE_PARTITION,
    Source.STATE,
    "Records that wait for their dead-letter record; the start offset waits with them.",
)
RESOLVING_RECORDS = own(
    Kind.GAUGE,
    "resolving_records",
    SHARE_PARTITION,
    Source.STATE,
    "Records whose delivery has ended, and of which it is not known yet whether their sink has their results.",
)
SINK = ("group", "sink")
OPEN_WRITES = own(
    Kind.GAUGE, "open_writes", SINK, Source.STATE, "Writes into a sink that are not closed, of members at work, too."
)
WRITES_IN_DOUBT = own(
    Kind.GAUGE, "writes_in_doubt", SINK, Source.STATE, "Those of them that somebody has to look up in the sink."
)
OLDEST_WRITE_IN_DOUBT_SECONDS = own(
    Kind.GAUGE,
    "oldest_write_in_doubt_seconds",
    SINK,
    Source.STATE,
    "Time since the acquisition of the oldest of these, 0 without one; it rises while nobody reaches the sink.",
)
TRANSITIONS = own(
    Kind.COUNTER, "transitions", ("group", "topic", "cause"), Source.ROWS, "Changes of a record's state, by cause."
)
REDELIVERIES = own(
    Kind.COUNTER, "redeliveries", ("group", "topic"), Source.ROWS, "Records acquired that had been delivered before."
)
DELIVERY_LIMIT_REACHED = own(
    Kind.COUNTER,
    "delivery_limit_reached",
    ("group", "topic"),
    Source.ROWS,
    "Records given up because they were delivered as often as share.delivery.count.limit allows.",
)
MEMBERS = own(Kind.GAUGE, "members", ("group",), Source.STATE, "Members of the group.")
QUARANTINED = own(
    Kind.GAUGE, "quarantined", ("group",), Source.STATE, "1 when the group is quarantined: it stands still, 0 else."
)
PAUSED = own(Kind.GAUGE, "paused", ("group",), Source.STATE, "1 when an administrator has paused the group, 0 else.")
DEAD_LETTERS_FAILING = own(
    Kind.GAUGE,
    "dead_letters_failing",
    ("group",),
    Source.STATE,
    "1 when dead-letter records of the group cannot be written, 0 else.",
)
LEADER_EPOCH = own(
    Kind.GAUGE, "leader_epoch", (), Source.STATE, "Epoch of the processor that took the state table over last."
)
COMMITS = own(Kind.COUNTER, "commits", (), Source.ROWS, "Commits to the state table.")
CUTS = own(
    Kind.COUNTER, "cuts", (), Source.PROCESSOR, "Cuts that were applied: messages that were taken and applied together."
)
MESSAGES = own(Kind.COUNTER, "messages", (), Source.PROCESSOR, "Messages of the request log that were applied.")
RESPONSES = own(Kind.COUNTER, "responses", (), Source.PROCESSOR, "Responses that were published.")
LOOP_MILLISECONDS = own(
    Kind.COUNTER,
    "loop_milliseconds",
    ("step",),
    Source.PROCESSOR,
    "Time of each step of the loop: take (age of the first message of each cut), apply, commit and publish.",
)
UNDECODABLE_MESSAGES = own(
    Kind.COUNTER,
    "undecodable_messages",
    (),
    Source.PROCESSOR,
    "Messages that could not be read, and did not name whom to respond to.",
)
UNADDRESSED_RESPONSES = own(
    Kind.COUNTER,
    "unaddressed_responses",
    (),
    Source.PROCESSOR,
    "Responses to a partition that the response log does not have.",
)
UPKEEP_FAILURES = own(
    Kind.COUNTER, "upkeep_failures", (), Source.PROCESSOR, "Runs of the state table's upkeep that failed."
)
FOLLOWERS_FAILED = own(
    Kind.COUNTER,
    "followers_failed",
    (),
    Source.PROCESSOR,
    "Followers of published commits (event log, activity, upkeep, metrics) that failed; each is left out from then on.",
)
PROCESSOR_INFO = own(
    Kind.GAUGE, "processor_info", ("state_table",), Source.PROCESSOR, "1, with the state table of this processor."
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric)) + tuple(
    LATENCY_METRICS.values()
)
"""Every metric, Kafka's first."""
