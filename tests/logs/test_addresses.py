"""Partitions of keys, ids of topics, addresses of logs."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import ConfigurationError, LogError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.local import LocalLog
from sharegroup.logs.open import open_log
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.topic_properties import new_topic_id


@pytest.mark.parametrize(
    ("key", "partition_count", "partition"),
    [
        ("orders", 1, 0),
        (b"123456789", 1000, 0xCBF43926 % 1000),  # the check value of CRC-32
        ("grüße", 64, zlib.crc32("grüße".encode()) % 64),
        (b"", 7, 0),
        (None, 7, 0),
    ],
)
def test_partition_of_a_key(key: bytes | str | None, partition_count: int, partition: int) -> None:
    assert partition_for(key, partition_count) == partition


@given(st.binary(), st.integers(1, 1000))
def test_every_key_has_a_partition(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_for(key, partition_count) < partition_count


def test_no_partitions_to_choose_from() -> None:
    with pytest.raises(ConfigurationError, match="partition count is 0"):
        partition_for("orders", 0)


def test_topic_ids_are_kafka_uuids() -> None:
    ids = [new_topic_id() for _ in range(2_000)]
    assert len(set(ids)) == len(ids)
    for topic_id in ids:
        assert len(topic_id) == 22
        assert not topic_id.startswith("-")
        assert len(base64.urlsafe_b64decode(topic_id + "==")) == 16


@pytest.mark.parametrize("prefix", ["", "local://"])
def test_open_a_local_log(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "events.log"
    with open_log(f"{prefix}{path}") as log:
        assert isinstance(log, LocalLog)
        log.create_topic("events", 1)
    with LocalLog(path) as again:
        assert [topic.name for topic in again.topics()] == ["events"]


@pytest.mark.parametrize(
    "address", ["", "kafka:broker:9092", "localhost:9092", "file:///tmp/x", "local:/x", "local://", "local://x/y"]
)
def test_addresses_of_no_supported_kind(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"local:///absolute/path"):
        open_log(address)


def test_a_log_that_must_exist_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.log"
    with pytest.raises(LogError, match=r"There is no log at .*events\.log\. .*correct the path"):
        open_log(str(path), must_exist=True)
    assert not path.parent.exists()
    with LocalLog(path) as log:
        log.create_topic("orders", 1)
    with open_log(str(path), must_exist=True) as log:
        assert log.describe_topic("orders").partition_count == 1


@pytest.mark.parametrize(
    "address", ["kafka://broker:9092", "kafka://b1:9092,b2:9092", KafkaConfig(bootstrap_servers="broker:9092")]
)
def test_open_a_kafka_log(address: str | KafkaConfig) -> None:
    # Opening asks nothing of the cluster.
    with open_log(address) as log:
        assert isinstance(log, KafkaLog)


@pytest.mark.parametrize("address", ["kafka://", "kafka://broker", "kafka://broker:9092/path", KafkaConfig()])
def test_kafka_addresses_without_a_broker(address: str | KafkaConfig) -> None:
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
        open_log(address)
