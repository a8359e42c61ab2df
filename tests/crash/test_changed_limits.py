"""The broker's configuration changes between two starts, while messages wait to be applied again."""

from __future__ import annotations

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.processor.commit import CommitPoint
from sharegroup.protocol.rows import StateRow, TransitionEntry
from tests.crash.auditor import assert_only_appended
from tests.crash.deployment import Deployment
from tests.crash.processor_process import arm
from tests.support.eventually import DEADLINE_S
from tests.support.site import BROKER, Site

pytestmark = [pytest.mark.slow, pytest.mark.long("many kills; one of each kind stays")]

_LIMIT = "group_share_delivery_count_limit"
_RECORDS = 10


@pytest.mark.parametrize("point", [CommitPoint.APPLIED, CommitPoint.COMMITTED])
@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2)])
def test_a_delivery_limit_that_changes_with_a_kill_does_not_fork_the_state(
    deployment: Deployment, point: str, before: int, after: int
) -> None:
    site = deployment.site
    deployment.processor.kill()
    deployment.spawn(broker={_LIMIT: before})
    topic, group_id = site.new_topic(record_count=_RECORDS), site.new_group(share_record_lock_duration_ms="60000")
    consumer = site.consumer(group_id, topic, share_acknowledgement_mode="explicit")
    try:
        release_all(site, consumer)
        consumer.commit_sync(timeout=DEADLINE_S)
        release_all(site, consumer)
        # The release of the last delivery that the lower limit allows is applied, and perhaps committed.
        arm(site.folder, point)
        consumer.commit_async()
        deployment.processor.await_end()
        rows = site.rows()
        deployment.spawn(broker={_LIMIT: after})
        deployment.until(lambda: last_releases(site, group_id), "the second release took effect")
        assert_only_appended(rows, site.rows())
    finally:
        consumer.close(timeout=0)
    released = last_releases(site, group_id)
    limit = before if {row.leader_epoch for row, _ in released} == {rows[-1].leader_epoch} else after
    expected = RecordState.ARCHIVED if limit == 2 else RecordState.AVAILABLE
    assert {entry.to_state for _, entry in released} == {expected}
    assert sum(entry.transition.size for _, entry in released) == _RECORDS
    mine = [row for row in site.rows() if row.group_id == group_id]
    assert verify(mine, BROKER.model_copy(update={_LIMIT: limit})).findings == []


def release_all(site: Site, consumer: ShareConsumer) -> None:
    for message in site.poll(consumer, _RECORDS):
        consumer.acknowledge(message, AcknowledgeType.RELEASE)


def last_releases(site: Site, group_id: str) -> list[tuple[StateRow, TransitionEntry]]:
    """Return the releases of second deliveries, with their rows."""
    return [
        (row, entry)
        for row in site.rows(group_id)
        for entry in row.transitions
        if entry.cause is Cause.RELEASE and entry.delivery_count == 2
    ]
