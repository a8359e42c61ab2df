"""The metrics of a running processor: by HTTP, and in the progress of its query."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.errors import ConfigurationError, FencedProcessorError
from sharegroup.metrics.progress import BATCH_FIGURES, OBSERVATION
from sharegroup.spark.processor import Processor
from tests.spark.site import Site

pytestmark = pytest.mark.spark

Series = dict[tuple[str, ...], float]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def scraped(port: int) -> dict[str, Series]:
    """What Prometheus would read: name → values of its labels by their names → value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def progress_sums(query: StreamingQuery) -> Counter[str]:
    """The figures of all batches so far, added up."""
    sums: Counter[str] = Counter()
    for progress in query.recentProgress:
        observed = progress.observedMetrics.get(OBSERVATION)
        if observed is not None:
            sums.update(observed.asDict())
    return sums


def test_metrics_are_shown_by_http_and_in_the_progress(spark: SparkSession, new_site: Callable[..., Site]) -> None:
    port = free_port()
    site = new_site(metrics_port=port)
    others = {query.id for query in spark.streams.active}
    with site.running():
        (query,) = (query for query in spark.streams.active if query.id not in others)
        topic = site.new_topic(record_count=30)
        group = site.new_group()
        with site.consumer(group, topic, max_poll_records=10, share_acknowledgement_mode="explicit") as consumer:
            for message in site.poll(consumer, 10)[:10]:
                consumer.acknowledge(
                    message, AcknowledgeType.REJECT if message.offset() == 9 else AcknowledgeType.ACCEPT
                )
            consumer.commit_sync(timeout=20)
            found = site.until(
                lambda: (shown := scraped(port))["sharegroup_lag"].get((group, "0", topic)) == 20 and shown,
                "ten records are finished",
            )
            accepted = found["kafka_server_sharegroupmetrics_recordacknowledgements_total"]
            assert (accepted["Accept",], accepted["Reject",]) == (9, 1)
            assert found["kafka_server_sharesessioncache_sharesessionscount"] == {(): 1}
            assert found["kafka_server_group_coordinator_metrics_share_group_count"]["Stable",] == 1
            assert found["sharegroup_members"] == {(group,): 1}
            assert found["kafka_server_share_coordinator_metrics_write_latency_max"][()] > 0
            assert found["sharegroup_leader_epoch"] == {(): 1}
            site.until(lambda: progress_sums(query)["RecordAcknowledgementsPerSec.Accept"] == 9, "the progress says so")
            assert set(progress_sums(query)) == set(BATCH_FIGURES)
            assert progress_sums(query)["transitions.reject"] == 1
        # What has been counted so far is what the progress adds up to, and nothing waits.
        shown = site.until(
            lambda: (now := scraped(port))["kafka_server_share_coordinator_metrics_event_queue_size"][()] == 0 and now,
            "every message is applied",
        )
        writes = shown["kafka_server_share_coordinator_metrics_write_total"][()]
        site.until(lambda: progress_sums(query)["write-total"] == writes, "the progress has the same writes")
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_a_port_in_use_changes_nothing_for_the_running_processor(
    spark: SparkSession, new_site: Callable[..., Site]
) -> None:
    port = free_port()
    site = new_site(metrics_port=port)
    # Of the same state table and checkpoint, but at a port that somebody else has.
    with socket.create_server(("127.0.0.1", 0)) as taken, site.running() as older:
        other = new_site(metrics_port=taken.getsockname()[1])
        younger = Processor(spark, other.settings)
        with pytest.raises(ConfigurationError, match=r"metrics\.port \d+ of metrics\.host 127\.0\.0\.1 cannot be"):
            younger.start()
        younger.stop()
        site.new_group()
        older.raise_failure()
        assert scraped(port)["sharegroup_leader_epoch"] == {(): 1}


def test_a_processor_that_takes_over_has_the_port_of_the_older_one(
    spark: SparkSession, new_site: Callable[..., Site]
) -> None:
    port = free_port()
    older, younger = new_site(metrics_port=port), new_site(metrics_port=port)
    ended: list[BaseException] = []

    def run_until_fenced(processor: Processor) -> None:
        try:
            processor.await_termination()
        except FencedProcessorError as error:
            ended.append(error)
        processor.stop()

    thread = threading.Thread(target=run_until_fenced, args=(older.start(),))
    thread.start()
    with younger.running():
        thread.join()
        assert len(ended) == 1
        assert scraped(port)["sharegroup_leader_epoch"] == {(): 2}


def test_a_start_that_fails_gives_the_port_back(spark: SparkSession, new_site: Callable[..., Site]) -> None:
    port = free_port()
    site = new_site(metrics_port=port)
    site.log.create_topic("__share_requests", 5)
    with pytest.raises(ConfigurationError, match=r"request\.topic\.partitions"):
        site.start()
    with pytest.raises(OSError, match="refused"):
        scraped(port)
