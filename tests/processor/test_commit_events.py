"""Events of published commits."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from sharegroup.actor.effects import Effect, Persist, Undecodable
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.processor.followers.commit_events import log_commit
from sharegroup.protocol.group_records import (
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupRemoved,
)
from sharegroup.protocol.messages import Message
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from tests.processor.commits import published

FIELDS = "group=g share_partition=orders-1 epoch=3 state_epoch=2"


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
            [f"INFO event=share_partition_initialized {FIELDS} start_offset=5"],
        ),
        (
            [share_partition(record_type=RecordType.SHARE_TOMBSTONE)],
            [f"INFO event=share_partition_deleted {FIELDS}"],
        ),
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
                f"WARNING event=acquisition_lock_timeout {FIELDS} records=7",
                f"WARNING event=delivery_count_limit_reached {FIELDS} records=2",
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
            ['WARNING event=request_undecodable epoch=3 partition=0 offset=40 reason="no JSON"'],
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
def test_events_of_a_commit(caplog: pytest.LogCaptureFixture, effects: Sequence[Effect], lines: list[str]) -> None:
    with caplog.at_level(logging.INFO, "sharegroup.processor"):
        log_commit(published(*effects))
    logged = [f"{record.levelname} {record.msg}" for record in caplog.records]
    rows = sum(isinstance(effect, Persist) for effect in effects)
    first = f"INFO event=commit_published commit=17 epoch=3 groups=1 messages=2 rows={rows} commit_ms=18"
    assert logged == ([first] if rows else []) + lines


def test_a_commit_without_anything_durable_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sharegroup.processor"):
        log_commit(published(commit_id=None))
    assert [f"{record.levelname} {record.msg}" for record in caplog.records] == [
        "DEBUG event=commit_published epoch=3 groups=1 messages=2 rows=0"
    ]
