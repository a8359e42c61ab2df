"""Random lives of a group: its deliveries and figures are those of its transitions, and end with the live state."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings

from sharegroup.audit.history.deliveries import STATE_ENDED, Delivery, DeliveryTrace
from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.history.known_names import KnownNames
from sharegroup.audit.statistics.partition_stats import partition_stats
from sharegroup.audit.statistics.stats import group_stats
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import DeleteShareGroupState
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import fold, fold_order
from tests.actor.group_harness import GROUP_ID, group_with, joined
from tests.actor.test_group_simulation import GroupMachine
from tests.support.examples import examples

Held = tuple[str, int, int, str, int, int]
"""Topic id, partition, offset, member, delivery count and deadline."""


def deliveries_in(rows: list[StateRow]) -> list[Delivery]:
    return [change for change in DeliveryTrace({}).follow(rows) if isinstance(change, Delivery)]


def held_in(deliveries: list[Delivery]) -> set[Held]:
    return {
        (d.topic_id, d.partition, offset, d.member_id, d.delivery_count, d.deadline_ms)
        for d in deliveries
        if d.outcome is None
        for offset in range(d.first_offset, d.last_offset + 1)
    }


def ended_in(rows: list[StateRow]) -> Counter[str]:
    """Cause → records whose lock it ended."""
    counts = Counter[str]()
    for row in rows:
        for entry in row.transitions:
            if entry.from_state is RecordState.ACQUIRED and entry.to_state is not RecordState.ACQUIRED:
                counts[entry.cause.value] += entry.transition.size
    return counts


class AuditedMachine(GroupMachine):
    """A group whose rows are audited twice: as it stands at the end of its life, and when all locks have ended."""

    def teardown(self) -> None:
        self.audit()
        super().teardown()
        self.audit()

    def audit(self) -> None:
        rows = sorted(self.group.rows, key=fold_order)
        deliveries = deliveries_in(rows)
        outcomes = Counter[str]()
        for delivery in deliveries:
            if delivery.outcome is not None:
                outcomes[delivery.outcome] += delivery.last_offset - delivery.first_offset + 1
                assert delivery.acquired_ms is not None
                assert delivery.ended_ms is not None
        assert outcomes == ended_in(rows)
        assert held_in(deliveries) == {
            (topic_id, partition, offset, run.member_id, run.delivery_count, run.deadline_ms)
            for (topic_id, partition), folded in fold(rows).groups[GROUP_ID].partitions.items()
            for run in folded.share_partition.runs
            if run.state is RecordState.ACQUIRED
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        acquired_count = group_history(GROUP_ID, rows).record_count(Cause.ACQUIRE)
        assert outcomes.total() + len(held_in(deliveries)) == acquired_count
        self.check_figures(rows, outcomes, acquired_count)

    def check_figures(self, rows: list[StateRow], outcomes: Counter[str], acquired_count: int) -> None:
        of_partitions = [
            partition_stats([row for row in rows if (row.topic_id, row.partition) == key], limit=5)
            for key in sorted({(row.topic_id, row.partition) for row in rows if row.partition >= 0})
        ]
        figures = group_stats(GROUP_ID, of_partitions, KnownNames(), self.group.now_ms, limit=5)
        assert figures["time_in_state"]["ACQUIRED"]["record_count"] == outcomes.total()
        assert sum(member["acquired_count"] for member in figures["members"]) == acquired_count
        longest = [pin["duration_ms"] for pin in figures["head_of_line_pins"]]
        assert longest == sorted(longest, reverse=True)
        assert min(longest, default=0) >= 0


TestHistories = pytest.mark.slow(AuditedMachine.TestCase)
TestHistories.settings = settings(max_examples=examples(15), stateful_step_count=40)


def test_a_state_that_is_deleted_ends_the_deliveries_of_it() -> None:
    group = group_with(20)
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    group.tell(ApiKey.DELETE_SHARE_GROUP_STATE, DeleteShareGroupState(state_epoch=99, topic_ids=["orders-id"]))
    group.run_batch()
    (delivery,) = deliveries_in(group.rows)
    assert (delivery.first_offset, delivery.last_offset, delivery.outcome) == (0, 9, STATE_ENDED)
    assert (delivery.ended_ms, delivery.to_state) == (group.now_ms, None)
