"""A processor is idle while no group has a member and nothing is left to do."""

from __future__ import annotations

from sharegroup.actor.effects import Persist
from sharegroup.processor.activity import GroupActivity
from sharegroup.processor.commit import AppliedGroup, Commit
from sharegroup.protocol.group_records import ShareGroupMemberMetadata, ShareGroupMemberRemoved
from sharegroup.protocol.messages import Message
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedState, fold

JOINED = ShareGroupMemberMetadata(member_id="m", client_id="c", subscribed_topic_names=["a", "b"])
LEFT = ShareGroupMemberRemoved(member_id="m", reason="session timeout")


def metadata(*records: Message) -> StateRow:
    payload = {"records": [record.model_dump(mode="json") for record in records]}
    return StateRow(record_type=RecordType.GROUP_METADATA, group_id="g", payload=payload)


def commit(row: StateRow) -> Commit:
    group = AppliedGroup("g", 0, 2, 900, 1_000, [Persist(row)])
    return Commit(17, 3, [], [group], {0: 41}, 18.4, 20.0)


def test_a_processor_is_idle_while_nobody_is_a_member_and_nothing_is_left_to_do() -> None:
    now_s = 0.0
    activity = GroupActivity(FoldedState(), {0: 40, 1: 7}, lambda: now_s)
    for now_s, published, end_offset, is_writing, idle_s in [
        (1.0, None, 40, False, 1.0),
        (2.0, None, 41, False, None),
        (3.0, metadata(JOINED), 41, False, None),
        (4.0, None, 41, False, None),
        (5.0, metadata(LEFT), 41, False, 0.0),
        (7.0, None, 41, False, 2.0),
        (8.0, metadata(), 41, False, 0.0),
        (9.0, None, 41, False, 1.0),
        (10.0, None, 41, True, None),
        (12.0, None, 41, False, 2.0),
    ]:
        if published is not None:
            activity.published(commit(published))
        assert activity.idle_s({0: end_offset, 1: 7}, is_writing) == idle_s, now_s


def test_members_of_the_folded_state_count() -> None:
    activity = GroupActivity(fold([metadata(JOINED)]), {0: 41}, lambda: 0.0)
    assert activity.idle_s({0: 41}) is None
    activity.published(commit(metadata(LEFT)))
    assert activity.idle_s({0: 41}) == 0.0
