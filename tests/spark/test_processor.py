"""The processor as its members see it: real Spark, Delta and log, one processor for all tests."""

from __future__ import annotations

import itertools

import pytest

from sharegroup.protocol.marker import BatchMarkerPayload
from sharegroup.protocol.rows import RecordType
from tests.spark.site import Site, places


def test_a_consumer_drains_a_topic(site: Site) -> None:
    topic = site.new_topic(partition_count=3, record_count=200)
    group_id = site.new_group()
    with site.consumer(group_id, topic, max_poll_records=100) as consumer:
        messages = site.poll(consumer, 600)
        consumer.commit_sync()
        assert site.is_drained(group_id, topic)
    assert places(messages) == {(partition, offset) for partition in range(3) for offset in range(200)}
    assert len(messages) == 600
    assert {message.delivery_count() for message in messages} == {1}
