"""What the log says of a batch, and whether it is over, from the rows that the actors made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from sharegroup.actor.effects import Effect, Persist, Undecodable
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.group_records import (
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupRemoved,
)
from sharegroup.protocol.messages import Message
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.spark.actor_function import ActorOutput
from sharegroup.spark.batch_log import log_batch
from sharegroup.spark.bootstrap import CheckpointIdentity
from sharegroup.spark.group_activity import GroupActivity
from sharegroup.state.fold import FoldedState

PLACE = "group=g share_partition=orders-1 epoch=3 state_epoch=2"


def output(*effects: Effect) -> ActorOutput:
    return ActorOutput("g", "leader", 0, 41, 2, 1_000, 900, list(effects))


def share_partition(*entries: TransitionEntry, record_type: RecordType = RecordType.SHARE_UPDATE) -> Persist:
    row = StateRow(
        record_type=record_type,
        group_id="g",
        topic="orders",
        partition=1,
        state_epoch=2,
        snapshot_epoch=0,
        start_offset=5,
    )
    return Persist(row.model_copy(update={"transitions": list(entries)}))


def transition(cause: Cause, to_state: RecordState, first: int, last: int) -> TransitionEntry:
    return TransitionEntry(
        first_offset=first,
        last_offset=last,
        from_state=RecordState.ACQUIRED,
        to_state=to_state,
        delivery_count=1,
        member_id="m",
        deadline_ms=0,
        cause=cause,
        time_ms=1,
        request_offset=40,
    )


def metadata(*records: Message) -> Persist:
    payload = {"records": [record.model_dump(mode="json") for record in records]}
    return Persist(StateRow(record_type=RecordType.GROUP_METADATA, group_id="g", payload=payload))


def status(status: str) -> Persist:
    payload = {"role": "leader", "status": status, "reason": "two words"}
    return Persist(StateRow(record_type=RecordType.GROUP_STATUS, group_id="g", payload=payload))


JOINED = ShareGroupMemberMetadata(member_id="m", client_id="c", subscribed_topic_names=["a", "b"])
LEFT = ShareGroupMemberRemoved(member_id="m", reason="session timeout")


@pytest.mark.parametrize(
    ("effects", "lines"),
    [
        (
            [share_partition(record_type=RecordType.SHARE_SNAPSHOT)],
            [f"INFO event=share_partition_initialized {PLACE} start_offset=5"],
        ),
        ([share_partition(record_type=RecordType.SHARE_TOMBSTONE)], [f"INFO event=share_partition_deleted {PLACE}"]),
        (
            [metadata(ShareGroupRemoved(reason="deleted"))],
            ["INFO event=group_removed group=g epoch=3 reason=deleted"],
        ),
        ([share_partition(transition(Cause.ACCEPT, RecordState.ACKNOWLEDGED, 5, 9))], []),
        (
            [
                share_partition(
                    transition(Cause.LOCK_TIMEOUT, RecordState.AVAILABLE, 5, 9),
                    transition(Cause.LOCK_TIMEOUT, RecordState.ARCHIVED, 10, 11),
                    transition(Cause.REJECT, RecordState.ARCHIVED, 12, 12),
                )
            ],
            [
                f"WARNING event=acquisition_lock_timeout {PLACE} records=7",
                f"WARNING event=delivery_count_limit_reached {PLACE} records=2",
            ],
        ),
        (
            [metadata(ShareGroupMetadata(epoch=7), JOINED, LEFT)],
            [
                "INFO event=member_subscribed group=g epoch=3 group_epoch=7 member=m client=c topics=a,b",
                'INFO event=member_removed group=g epoch=3 group_epoch=7 member=m reason="session timeout"',
            ],
        ),
        ([status("FAILED")], ['ERROR event=group_quarantined group=g epoch=3 actor=leader reason="two words"']),
        ([status("ACTIVE")], ['INFO event=group_resumed group=g epoch=3 actor=leader reason="two words"']),
        (
            [Undecodable(40, "no JSON")],
            ['WARNING event=request_undecodable epoch=3 offset=40 reason="no JSON"'],
        ),
    ],
    ids=[
        "initialised",
        "deleted",
        "removed",
        "everyday",
        "timeouts",
        "members",
        "quarantined",
        "resumed",
        "undecodable",
    ],
)
def test_lines_of_a_batch(caplog: pytest.LogCaptureFixture, effects: Sequence[Effect], lines: list[str]) -> None:
    with caplog.at_level(logging.INFO, "sharegroup.spark.processor"):
        log_batch(17, 3, [output(*effects)], 18.4)
    logged = [f"{record.levelname} {record.msg}" for record in caplog.records]
    rows = sum(isinstance(effect, Persist) for effect in effects)
    batch = (
        [f"INFO event=batch_committed batch=17 epoch=3 groups=1 messages=2 rows={rows} commit_ms=18"] if rows else []
    )
    assert logged == batch + lines


def test_a_batch_that_is_executed_again_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sharegroup.spark.processor"):
        log_batch(17, 3, [output(metadata(JOINED))], None)
    assert str(caplog.records[0].msg) == "event=batch_repeated batch=17 epoch=3 groups=1 messages=2 rows=1"


@dataclass
class Start:
    """What a processor starts from, as far as its activity hangs on it."""

    folded: FoldedState = field(default_factory=FoldedState)
    identity: CheckpointIdentity = field(default_factory=lambda: CheckpointIdentity("c", "t", {0: 40, 1: 7}))
    last_marker: tuple[int, dict[int, int]] | None = None


def test_a_processor_is_idle_while_nobody_is_a_member_and_nothing_is_left_to_do() -> None:
    now_s = 0.0
    activity = GroupActivity(Start(), lambda: now_s)  # type: ignore[arg-type]
    for now_s, committed, end_offset, is_writing, idle_s in [
        (1.0, [], 40, False, 1.0),
        (2.0, [], 41, False, None),
        (3.0, [metadata(JOINED)], 41, False, None),
        (4.0, [], 41, False, None),
        (5.0, [metadata(LEFT)], 41, False, 0.0),
        (7.0, [], 41, False, 2.0),
        (8.0, [metadata()], 41, False, 0.0),
        (9.0, [], 41, False, 1.0),
        (10.0, [], 41, True, None),
        (12.0, [], 41, False, 2.0),
    ]:
        if committed:
            activity.committed([output(*committed)])
        assert activity.idle_s({0: end_offset, 1: 7}, is_writing) == idle_s, now_s
