"""verify on the epochs of a group that ends and begins again: they rise for the table's life."""

from __future__ import annotations

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.group_records import GroupRecord, ShareGroupMetadata, ShareGroupRemoved
from sharegroup.protocol.row_payloads import GroupMetadataPayload
from sharegroup.protocol.rows import RecordType, StateRow

REMOVED = ShareGroupRemoved(reason="deleted", epoch=4)


def epochs_break_a_rule(*records: GroupRecord) -> bool:
    """True if verify reports the epochs of these records, one row each."""
    rows = [
        StateRow(
            record_type=RecordType.GROUP_METADATA,
            group_id="packers",
            request_partition=0,
            request_offset=offset,
            payload=GroupMetadataPayload(records=[record]).model_dump(mode="json"),
        )
        for offset, record in enumerate(records)
    ]
    invariants = {finding.violation.invariant for finding in verify(rows, BrokerConfig()).findings}
    assert invariants <= {"group_epoch_rises_by_one"}
    return bool(invariants)


def epoch(number: int) -> ShareGroupMetadata:
    return ShareGroupMetadata(epoch=number)


@pytest.mark.parametrize("first", [1, 41])
def test_a_group_begins_at_any_epoch_and_goes_on_by_one(first: int) -> None:
    assert not epochs_break_a_rule(epoch(first), epoch(first + 1))
    assert epochs_break_a_rule(epoch(first), epoch(first + 2))
    assert epochs_break_a_rule(epoch(first), epoch(first))


@pytest.mark.parametrize("first", [5, 41])
def test_after_a_removal_it_begins_above_its_former_epochs(first: int) -> None:
    assert not epochs_break_a_rule(epoch(4), REMOVED, epoch(first), epoch(first + 1))


@pytest.mark.parametrize("first", [1, 4])
def test_after_a_removal_it_does_not_begin_at_an_epoch_that_it_had(first: int) -> None:
    assert epochs_break_a_rule(epoch(4), REMOVED, epoch(first))
