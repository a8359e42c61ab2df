"""Changes by administrators, through a processor and across the loss of its checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.protocol.rows import RecordType
from tests.support.site import BROKER, Site, places

pytestmark = pytest.mark.slow

NewSite = Callable[..., Site]


def test_altered_and_deleted_state_outlives_the_processor(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic, gone = site.new_topic(record_count=10), site.new_topic(record_count=10)
        group_id = site.new_group()
        for name in (topic, gone):
            with site.consumer(group_id, name) as consumer:
                site.poll(consumer, 10)
        assert site.admin.alter_share_group_offsets(group_id, {(topic, 0): 7}) == {(topic, 0): None}
        assert site.admin.delete_share_group_offsets(group_id, [gone]) == {gone: None}
    with site.running():
        with site.consumer(group_id, topic) as consumer:
            assert places(site.poll(consumer, 3)) == {(0, 7), (0, 8), (0, 9)}
        assert {folded.topic for folded in site.folded(group_id).partitions.values()} == {topic}
        assert site.admin.delete_share_groups([group_id]) == {group_id: None}
        assert site.admin.delete_share_groups([group_id])[group_id] is not None
    assert [row.topic for row in site.rows(group_id, RecordType.SHARE_TOMBSTONE)] == [gone, topic]
    assert site.folded(group_id).metadata.is_dead
    assert verify(site.rows(), BROKER).findings == []
