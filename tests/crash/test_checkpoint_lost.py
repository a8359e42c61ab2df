"""Spark's checkpoint is disposable, in part and as a whole, and so is the request log."""

from __future__ import annotations

import pytest

from sharegroup.core.record_state import RecordState
from sharegroup.core.runs import Run
from sharegroup.protocol.rows import RecordType, StateRow
from tests.crash.auditor import assert_unchanged
from tests.crash.deployment import Deployment
from tests.crash.workload import Workload, workload
from tests.spark.site import REQUESTS

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_last_entry_of_the_commit_log_is_deleted(deployment: Deployment) -> None:
    site = deployment.site
    with workload(deployment, share_record_lock_duration_ms="15000") as load:
        before: list[StateRow] = []

        def forget() -> None:
            before.extend(site.rows())
            deployment.forget_last_commit()

        deployment.await_batches(2)
        deployment.crash("last entry of the commit log deleted", forget)
        deployment.await_batches(2)
        assert_unchanged(before, site.rows())
        load.check()


def test_the_checkpoint_is_deleted_while_members_run(deployment: Deployment) -> None:
    # Locks that end before the processor is back: what was acknowledged in the air must count all the same.
    with workload(deployment, share_record_lock_duration_ms="3000") as load:
        recovered_before = recovered_rows(deployment)
        deployment.await_batches(2)
        deployment.crash("checkpoint deleted", deployment.forget_checkpoint)
        assert len(recovered_rows(deployment)) == len(recovered_before) + 1
        load.check()


def test_the_checkpoint_is_deleted_under_a_running_processor(deployment: Deployment) -> None:
    with workload(deployment, share_record_lock_duration_ms="15000") as load:
        recovered_before = recovered_rows(deployment)
        # Spark may go on for a while, or stop at the next batch: it is the next start that finds out.
        deployment.forget_checkpoint()
        deployment.crash("checkpoint deleted under the running processor")
        assert len(recovered_rows(deployment)) == len(recovered_before) + 1
        load.check()


def test_the_checkpoint_and_the_request_log_are_both_deleted(deployment: Deployment) -> None:
    site = deployment.site
    with workload(deployment, share_record_lock_duration_ms="30000") as load:
        recovered_before = recovered_rows(deployment)
        members = site.folded(load.group_id).metadata.members
        locked: list[Run] = []

        def forget() -> None:
            deployment.forget_checkpoint()
            site.log.delete_topic(REQUESTS)
            locked.extend(locks(load))

        deployment.crash("checkpoint and request log deleted", forget)
        assert len(recovered_rows(deployment)) == len(recovered_before) + 1
        assert site.folded(load.group_id).metadata.members.keys() == members.keys()
        assert locked
        load.check()


def recovered_rows(deployment: Deployment) -> list[StateRow]:
    return deployment.site.rows(None, RecordType.RECOVERED)


def locks(load: Workload) -> list[Run]:
    """What members hold, as the state table has it."""
    partitions = load.deployment.site.folded(load.group_id).partitions.values()
    return [run for found in partitions for run in found.share_partition.runs if run.state is RecordState.ACQUIRED]
