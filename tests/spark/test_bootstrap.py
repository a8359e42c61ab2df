"""From the fold of the state table back to actors: what a recovery keeps, and what members have to do again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.actor.mailbox import ActorState
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.core.runs import Run
from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import request
from sharegroup.spark.bootstrap import (
    CheckpointIdentity,
    bootstrap_folder,
    bootstrap_state,
    read_identity,
    recovered_states,
    write_bootstrap,
)
from sharegroup.state.fold import fold
from tests.actor.group_harness import Group, Member, group_with, joined

ORDERS = ("orders-id", 0)
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
INVALID_RECORD_STATE = 121
SHARE_SESSION_NOT_FOUND = 122


def recover(group: Group) -> None:
    """The processor lost its checkpoint: both actors come back from the rows, and get their opening tick."""
    folded = fold(group.rows).groups[group.group_id]
    states = recovered_states(folded, group.context.broker, group.now_ms)
    group.states = {role: state.encoded() for role, state in states.items()}
    group.log_watch = group.topic_watch = None
    group.wakes = {}
    group.append(request(ApiKey.TICK, group.group_id, Tick()))
    group.settle()


def runs(group: Group) -> list[Run]:
    """What the leader has in flight of `orders-0`."""
    return list(group.leader.partitions[ORDERS].share_partition.runs)


def working_group() -> tuple[Group, Member]:
    """A member that holds 10..19 after it accepted 0..2, released 3..5 and rejected 6..9."""
    group = group_with(100)
    (member,) = joined(group, "member")
    member.fetch(max_records=10)
    member.acknowledge({ORDERS: [(0, 2, ACCEPT), (3, 5, RELEASE), (6, 9, REJECT)]})
    return group, member


def test_locks_counts_and_the_start_offset_are_back() -> None:
    group, member = working_group()
    assert member.fetch(max_records=10).acquired == {ORDERS: [(3, 5, 2), (10, 16, 1)]}
    before = runs(group)
    assert {run.state for run in before} == {RecordState.ACQUIRED, RecordState.ARCHIVED}
    recover(group)
    assert runs(group) == before
    assert group.leader.partitions[ORDERS].share_partition.start_offset == 3


def test_a_lock_still_ends_at_its_stored_deadline() -> None:
    group, member = working_group()
    member.fetch(max_records=10)
    (deadline_ms,) = {run.deadline_ms for run in runs(group) if run.state is RecordState.ACQUIRED}
    group.advance(deadline_ms - group.now_ms - 1_000)
    recover(group)
    group.advance(999)
    assert any(run.state is RecordState.ACQUIRED for run in runs(group))
    group.advance(1)
    assert not any(run.state is RecordState.ACQUIRED for run in runs(group))


def test_a_member_goes_on_with_a_new_session() -> None:
    group, member = working_group()
    assert member.fetch(max_records=10).record_count == 10
    recover(group)
    assert member.fetch().error_code == SHARE_SESSION_NOT_FOUND
    assert member.heartbeat().error_code == 0
    assert member.fetch(epoch=0, max_records=5).acquired == {ORDERS: [(17, 21, 1)]}
    assert member.acknowledge({ORDERS: [(10, 16, ACCEPT)]}).acknowledge_errors == {ORDERS: 0}


def test_acknowledgements_in_the_air_count_though_their_session_is_gone() -> None:
    group, member = working_group()
    member.fetch(max_records=10)
    recover(group)
    assert member.acknowledge({ORDERS: [(10, 11, ACCEPT)]}).acknowledge_errors == {ORDERS: 0}
    assert member.acknowledge({ORDERS: [(10, 12, ACCEPT)]}).acknowledge_errors == {ORDERS: INVALID_RECORD_STATE}
    assert member.fetch().error_code == SHARE_SESSION_NOT_FOUND
    assert member.close({ORDERS: [(12, 13, REJECT)]}).acknowledge_errors == {ORDERS: 0}
    assert not any(run.state is RecordState.ACQUIRED for run in runs(group))
    assert member.acknowledge({ORDERS: [(14, 14, ACCEPT)]}, epoch=5).error_code == SHARE_SESSION_NOT_FOUND


def test_members_have_a_whole_session_timeout_to_come_back() -> None:
    group, member = working_group()
    group.advance(40_000)
    recover(group)
    group.advance(40_000)
    assert member.heartbeat().error_code == 0


def test_configuration_and_quarantine_are_back() -> None:
    group, _ = working_group()
    assert group.alter_config(share_delivery_count_limit="3") == 0
    recover(group)
    assert group.leader.limits.delivery_count_limit == 3
    folded = fold(group.rows).groups[group.group_id]
    assert {state.failure for state in recovered_states(folded, group.context.broker, 0).values()} == {""}


def test_the_time_of_a_recovered_actor_does_not_go_back() -> None:
    group, member = working_group()
    recovered_at_ms = group.now_ms
    recover(group)
    group.now_ms -= 60_000
    member.fetch(epoch=0, max_records=10)
    assert all(run.deadline_ms > recovered_at_ms for run in runs(group) if run.state is RecordState.ACQUIRED)


# The files.


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    group, _ = working_group()
    folded = fold(group.rows)
    identity = CheckpointIdentity("id", "topic-id", {0: 17, 1: 4})
    write_bootstrap(tmp_path, identity, folded, group.context.broker, 1_000)
    assert read_identity(tmp_path) == identity
    expected = recovered_states(folded.groups[group.group_id], group.context.broker, 1_000)
    for role, state in expected.items():
        found = bootstrap_state(bootstrap_folder(tmp_path), group.group_id, role)
        assert found.encoded() == state.encoded()
        assert found.last_time_ms == 1_000


@pytest.mark.parametrize("group_id", ["other", "../group-1", "", "x" * 10_000, "grüße/🙂"])
def test_a_group_that_was_not_recovered_begins_with_nothing(tmp_path: Path, group_id: str) -> None:
    group, _ = working_group()
    write_bootstrap(tmp_path, CheckpointIdentity("id", "t", {}), fold(group.rows), group.context.broker, 0)
    assert bootstrap_state(bootstrap_folder(tmp_path), group_id, ActorRole.LEADER) == ActorState()


def test_a_folder_that_is_not_complete_has_no_identity(tmp_path: Path) -> None:
    assert read_identity(tmp_path / "absent") is None
    bootstrap_folder(tmp_path).mkdir()
    assert read_identity(tmp_path) is None
    # A processor that was killed while it wrote the identity.
    (bootstrap_folder(tmp_path) / "identity.json.new").write_text('{"checkpoint')
    assert read_identity(tmp_path) is None


def test_states_of_an_unknown_format_are_refused(tmp_path: Path) -> None:
    group, _ = working_group()
    write_bootstrap(tmp_path, CheckpointIdentity("id", "t", {}), fold(group.rows), group.context.broker, 0)
    for path in bootstrap_folder(tmp_path).glob("*.state"):
        path.write_bytes(b"\x94\x63" + path.read_bytes()[2:])
    with pytest.raises(UnsupportedFormatVersionError, match="Delete the checkpoint folder"):
        bootstrap_state(bootstrap_folder(tmp_path), group.group_id, ActorRole.LEADER)
