"""The rows of the benchmark: which programs measure a row, with which arguments, and how often.

A row's figures are those of its programs with the row's name in front: `round_trip.kafka.idle.p50` of row T7 becomes
`T7.kafka.idle.p50`. A round of up to 30 s is repeated five times. Programs that start a broker or a Spark session
repeat the rounds themselves (`--rounds`), all others are started once for each round.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """A program that measures a part of a row.

    Attributes:
        module: its name in `benchmarks`.
        arguments: its arguments, as a shell would divide them.
    """

    module: str
    arguments: str = ""
    starts: int = 1

    @property
    def command(self) -> str:
        """How to run it alone."""
        return f"python -m benchmarks.{self.module} {self.arguments}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the benchmark.

    Attributes:
        name: of the row, as `ROW=` takes it.
        title: what is measured.
        target: for people, on two cores; each figure knows its own.
        peer: what the figures are compared with; empty when there is nothing.
        is_long: it belongs to `make bench-long`.
    """

    name: str
    title: str
    target: str
    programs: tuple[Program, ...]
    peer: str = ""
    is_long: bool = False


def _round_trips(seconds: int) -> tuple[Program, ...]:
    # Micro-batches of Spark begin and end meanwhile; its JVM compiles in the first half minute.
    return tuple(
        Program("round_trip", f"--host spark --log {log} --load {load} --warm-up 30 --duration {seconds}")
        for log in ("local", "kafka")
        for load in ("idle", "busy")
    )


ROWS: tuple[Row, ...] = (
    Row(
        name="T1",
        title="Spark worker, Kafka → Delta, against a plain Spark stream of the same topic, in one warm session",
        target="0.8 of the plain stream; 0.8 of the best setting with nothing set",
        peer="a plain Spark stream, Kafka → Delta",
        programs=(Program("kafka_to_delta", "--rounds 5"),),
    ),
    Row(
        name="T2",
        title="Spark worker, Kafka → Delta, against Kafka's Java share consumer without any work",
        target="2x of the Java consumer, with large ranges; 0.8 of that with nothing set",
        peer="Kafka's ShareConsumerPerformance, with the default of 2,000 locks",
        programs=(Program("worker_against_java", "--rounds 5"),),
    ),
    Row(
        name="T3",
        title="One ShareConsumer against confluent-kafka's",
        target="1x with 100,000 locks, 0.5x with 2,000; 0.8 of the best with nothing set",
        peer="confluent-kafka's ShareConsumer, with the default of 2,000 locks",
        programs=(Program("share_consumers", "--rounds 5 --record-locks 2000 100000"),),
    ),
    Row(
        name="T4",
        title="Queues: 120 messages of 50 ms, 3 partitions, 6 consumers; late ones; 600 of 25 ms, one a poll; workers",
        target="1.2 s; 2.1 s; 3.5 s; 600 records of 50 ms with 3 workers: 1.4 of the ideal, all at work",
        peer="confluent-kafka's ShareConsumer",
        programs=(Program("queues", "--rounds 5"), Program("worker_queue", "--rounds 5")),
    ),
    Row(
        name="T5",
        title="A group of 300 members in two processes, 6 partitions, 5 ms a record",
        target="half of the ideal with 10,000 locks",
        peer="300 of confluent-kafka's ShareConsumers, with the default of 2,000 locks",
        programs=(Program("large_group", "--log kafka --record-locks 2000 10000 --peer"),),
    ),
    Row(
        name="T6",
        title="Skewed drains in record_limit mode: half of the partitions empty out; 12 partitions with a Zipf backlog",
        target="0.8 of the rate with only the partitions that are left",
        peer="Kafka's ShareConsumerPerformance in record_limit mode",
        programs=(Program("skewed_drain", "--rounds 5 --peer"),),
    ),
    Row(
        name="T7",
        title="Request → response under Spark at random times, two minutes each: idle, 500/s; embedded log, Kafka",
        target="p50 / p99: 20 / 70, 30 / 110; 25 / 85, 40 / 125 ms",
        programs=_round_trips(120),
    ),
    Row(
        name="T8",
        title="The engine alone: single-record acknowledgements of a share-partition with 100,000 fragments",
        target="100,000 a second; with the fragments, the time grows as their logarithm",
        programs=(Program("runs_benchmark", starts=5),),
    ),
    Row(
        name="T9",
        title="A commit that touches one share-partition, with 10,000 share-partitions, members or groups against 10",
        target="1.2x",
        peer="the same with 10",
        programs=(
            Program("commit_cost", "--many partitions --count 10000"),
            # A group has at most 1,000 members.
            Program("commit_cost", "--many members --count 1000"),
            Program("commit_cost", "--many groups --count 10000"),
        ),
    ),
    Row(
        name="T10",
        title="Recovery after 100,000 commits against one; with 100,000 share-partitions",
        target="1.5x; 10 s",
        programs=(Program("recovery", "--commits 100000 --rounds 5"), Program("large_state")),
        is_long=True,
    ),
    Row(
        name="T11",
        title="CPU of an idle processor on the embedded log, without members and with 10 that wait",
        target="1.5 % of a core",
        programs=(Program("idle_cost"),),
    ),
    Row(
        name="T12",
        title="An hour of 1,000 requests/s: the last ten minutes against the first",
        target="1.1x: memory, files, time of a commit",
        programs=(Program("hour"),),
        is_long=True,
    ),
    Row(
        name="T13",
        title="`audit verify` of 100 million transitions against 1 million",
        target="1.1x: time a transition, memory",
        programs=(Program("verify_history", "--millions 1 100 --share-partitions 1000 1"),),
        is_long=True,
    ),
    Row(
        name="T17",
        title="Exactly once into Delta: a sink against none, with ranges of 1 M, 10,000 and 100; after a kill",
        target="0.95x of without at 1 M, 0.9x at 10,000, the stream at 1 M; redelivered 0.3 s later, with Spark 1.5 s",
        peer="the same worker or consumer, whose program appends by itself; a plain Spark stream, Kafka → Delta",
        programs=(
            Program("worker_sink", "--rounds 5"),
            Program("consumer_sink", "--rounds 5"),
            Program("sink_redelivery", "--rounds 5"),
        ),
    ),
    Row(
        name="T7-long",
        title="Request → response under Spark at random times, ten minutes each",
        target="as T7",
        programs=_round_trips(600),
        is_long=True,
    ),
)


def row_of(name: str) -> Row:
    """Return the row with this name.

    Raises:
        KeyError: there is none.
    """
    return {row.name: row for row in ROWS}[name]
