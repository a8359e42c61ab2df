"""Offsets of partitions that others append to meanwhile."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from sharegroup.errors import InvalidTimestampError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord


def test_a_refused_timestamp_is_an_error_with_the_bound_and_the_topic_s_key(kafka_log_4_3_1: KafkaLog) -> None:
    log = kafka_log_4_3_1
    config = {"message.timestamp.before.max.ms": "60000"}
    topic = log.create_topic(f"events-{uuid4().hex[:8]}", 1, config).name
    with pytest.raises(InvalidTimestampError, match=f"before.max.ms of topic {topic} is 60000.*clock"):
        log.append(topic, 0, [NewRecord(None, b"old", timestamp_ms=1_000)])
    assert log.append(topic, 0, [NewRecord(None, b"new")]) == 0


def test_a_record_that_is_appended_during_the_lookup_of_a_time_is_not_passed_over(
    kafka_log_4_3_1: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kafka_log_4_3_1
    topic = log.create_topic(f"events-{uuid4().hex[:8]}", 1).name
    log.append(topic, 0, [NewRecord(None, b"old", timestamp_ms=1_000)])
    list_offsets = AdminClient.list_offsets
    new = [NewRecord(None, b"new", timestamp_ms=2_000)]

    def overtaken(*arguments: Any, **options: Any) -> Any:
        futures = list_offsets(*arguments, **options)
        for future in futures.values():
            future.result()
        if new:
            log.append(topic, 0, [new.pop()])
        return futures

    monkeypatch.setattr(AdminClient, "list_offsets", overtaken)
    assert log.offset_for_time(topic, 0, 2_000) == 1
    assert not new
    assert log.offset_for_time(topic, 0, 3_000) == 2
