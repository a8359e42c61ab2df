"""What a metric is: its name in Prometheus, its name in Kafka, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How the values of a metric behave; the names are Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    UNTYPED = "unknown"
    """A counter whose Kafka name has another ending than `_total`."""


class Source(StrEnum):
    """Where the values come from."""

    ROWS = "rows of the state table"
    STATE = "the folded state and the ends of the logs"
    ANSWERS = "the actors' answers"
    PROCESSOR = "the processor"


SHARE_PARTITION = ("group", "topic", "partition")
"""Labels of what a share-partition has by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric; there is one object of each, in the catalogue, so it is looked up by identity.

    Attributes:
        name: the Prometheus name.
        kafka_name: the object name and attribute of Kafka 4.3.1; "" for one that Kafka does not have.
        short_name: Kafka's own name, or ours without the prefix.
        kind: how its values behave.
        labels: Kafka's tags.
        meaning: what it says here.
        source: where its values come from.
    """

    name: str
    kafka_name: str
    short_name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    source: Source


def yammer(kind: Kind, type_: str, name: str, labels: tuple[str, ...], source: Source, meaning: str) -> Metric:
    """A metric that Kafka has as a bean of its own; the Prometheus name is that of the JMX exporter's Kafka rules."""
    made = f"kafka_server_{type_}_{name.removesuffix('PerSec')}".lower()
    if kind is Kind.COUNTER:
        made += "_total"
    return Metric(made, f"kafka.server:type={type_},name={name}", name, kind, labels, meaning, source)


def attribute(kind: Kind, type_: str, name: str, labels: tuple[str, ...], source: Source, meaning: str) -> Metric:
    """A metric that Kafka has as an attribute of a bean; the Prometheus name is the JMX exporter's default."""
    made = f"kafka_server_{type_}_{name}".replace("-", "_")
    return Metric(made, f"kafka.server:type={type_} {name}", name, kind, labels, meaning, source)


def own(kind: Kind, name: str, labels: tuple[str, ...], source: Source, meaning: str) -> Metric:
    """A metric that Kafka does not have."""
    made = f"sharegroup_{name}" + ("_total" if kind is Kind.COUNTER else "")
    return Metric(made, "", name, kind, labels, meaning, source)
