"""Redrive through a real processor: durable before its response, and delivered again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.core.record_state import Cause
from sharegroup.errors import GroupIdNotFoundError, InvalidRecordStateError
from tests.support.site import BROKER, Site, places

pytestmark = pytest.mark.slow

NewSite = Callable[..., Site]


def test_redriven_records_outlive_the_processor_and_are_delivered_again(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=6)
        group_id = site.new_group()
        with site.consumer(group_id, topic, share_acknowledgement_mode="explicit") as consumer:
            for message in site.poll(consumer, 6):
                if message.offset() in (2, 3):
                    consumer.acknowledge(message, AcknowledgeType.REJECT)
                elif message.offset() != 0:
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            consumer.commit_sync()
        key = (site.log.describe_topic(topic).topic_id, 0)
        assert site.admin.redrive_share_group_records(group_id, {key: [(2, 3)]}, "the sink is up again") == 2
        (entry,) = [e for row in site.rows(group_id) for e in row.transitions if e.cause is Cause.REDRIVE]
        assert (entry.first_offset, entry.last_offset, entry.delivery_count, entry.reason) == (
            2,
            3,
            0,
            "the sink is up again",
        )
        with pytest.raises(InvalidRecordStateError, match=r"2\.\.3 AVAILABLE"):
            site.admin.redrive_share_group_records(group_id, {key: [(2, 3)]})
        with pytest.raises(GroupIdNotFoundError):
            site.admin.redrive_share_group_records("nobody", {key: [(2, 3)]})
    with site.running(), site.consumer(group_id, topic) as consumer:
        messages = site.poll(consumer, 3)
        assert places(messages) == {(0, 0), (0, 2), (0, 3)}
        assert {message.offset(): message.delivery_count() for message in messages} == {0: 2, 2: 1, 3: 1}
    assert verify(site.rows(), BROKER).findings == []
