"""A processor is idle while no group has a member and nothing is left to do."""

from __future__ import annotations

from sharegroup.actor.effects import Persist
from sharegroup.processor.followers.followers import GroupActivity
from sharegroup.protocol.group_records import ShareGroupMemberMetadata, ShareGroupMemberRemoved
from sharegroup.protocol.messages import Message
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedState, fold
from tests.processor.commits import published

JOINED = ShareGroupMemberMetadata(member_id="m", client_id="c", subscribed_topic_names=["a", "b"])
LEFT = ShareGroupMemberRemoved(member_id="m", reason="session timeout")


def metadata(*records: Message) -> StateRow:
    payload = {"records": [record.model_dump(mode="json") for record in records]}
    return StateRow(record_type=RecordType.GROUP_METADATA, group_id="g", payload=payload)


def test_a_processor_is_idle_while_nobody_is_a_member_and_nothing_is_left_to_do() -> None:
    now_s = 0.0
    activity = GroupActivity(FoldedState(), lambda: now_s)
    for now_s, row, has_work, idle_s in [
        (1.0, None, False, 1.0),
        (2.0, None, True, None),
        (3.0, metadata(JOINED), False, None),
        (4.0, None, False, None),
        (5.0, metadata(LEFT), False, 0.0),
        (7.0, None, False, 2.0),
        (8.0, metadata(), False, 0.0),
        (9.0, None, False, 1.0),
        (10.0, None, True, None),
        (12.0, None, False, 2.0),
    ]:
        if row is not None:
            activity.published(published(Persist(row)))
        assert activity.idle_s(has_work) == idle_s, now_s


def test_members_of_the_folded_state_count() -> None:
    activity = GroupActivity(fold([metadata(JOINED)]), lambda: 0.0)
    assert activity.idle_s(has_work=False) is None
    activity.published(published(Persist(metadata(LEFT))))
    assert activity.idle_s(has_work=False) == 0.0
