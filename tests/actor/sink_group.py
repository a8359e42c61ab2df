"""Members with sinks, and the steps of their writes, in tests of a group's actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.share_fetch import (
    AcknowledgementRange,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchResponse,
)
from sharegroup.protocol.sink_writes import AcquisitionWrite, Sink
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolvedRange, ResolveWriteRequest
from sharegroup.state.fold import fold
from tests.actor.group_harness import Fetched, Group, LogPartition, Member, PartitionKey, group_with

ACCEPT, REJECT, RELEASE, UNREAD = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.REJECT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.UNREAD,
)
ORDERS = ("orders-id", 0)
ORDERS_1 = ("orders-id", 1)
TABLE = Sink(address="/tables/totals", table_id="totals", version=7)
OTHER_TABLE = Sink(address="/tables/other", table_id="other", version=1)
LOCK_MS = 30_000
Named = Mapping[PartitionKey, Sequence[tuple[int, int, AcknowledgeType]]]


def new_group(*partitions: LogPartition | int, **config: str) -> Group:
    group = group_with(*(partitions or (10,)))
    assert group.alter_config(share_exactly_once_enable="true", **config) == 0
    return group


def writer(group: Group, member_id: str = "anna", sink: Sink | None = TABLE) -> Member:
    member = Member(group, member_id, sink=sink)
    member.join()
    group.settle()
    member.take_assignments()
    return member


def response(fetched: Fetched) -> ShareFetchResponse:
    assert fetched.response is not None
    assert not fetched.response.error_code, fetched.response.error_message
    return fetched.response


def acquire(member: Member, *partitions: PartitionKey, **fields: Any) -> AcquisitionWrite:
    write = response(member.fetch(partitions or (ORDERS,), **fields)).write
    assert write is not None
    return write


def unresolved(fetched: Fetched) -> list[int]:
    return [write.version for write in response(fetched).unresolved]


def resolve(
    group: Group,
    write: AcquisitionWrite,
    others: AcknowledgeType | None = None,
    named: Named | None = None,
    *,
    is_closed: bool = True,
    app_id: str | None = None,
    table_id: str = "totals",
) -> dict[str, Any]:
    partitions = [
        ResolvedPartition(
            topic_id=topic_id,
            partition_index=partition,
            ranges=[
                ResolvedRange(first_offset=first, last_offset=last, acknowledge_type=kind)
                for first, last, kind in ranges
            ],
        )
        for (topic_id, partition), ranges in (named or {}).items()
    ]
    request = ResolveWriteRequest(
        app_id=app_id or write.app_id,
        version=write.version,
        table_id=table_id,
        others=others,
        partitions=partitions,
        is_closed=is_closed,
    )
    return group.response_to(ApiKey.RESOLVE_WRITE, request)


def acknowledge(
    member: Member, first: int, last: int, kind: AcknowledgeType, version: int, *, is_begun: bool = False
) -> int:
    """The error code of the acknowledgement."""
    batch = AcknowledgementRange(
        first_offset=first, last_offset=last, acknowledge_types=[kind], write_version=version, is_begun=is_begun
    )
    topics = [
        FetchTopic(
            topic_id="orders-id", partitions=[FetchPartition(partition_index=0, acknowledgement_batches=[batch])]
        )
    ]
    body = ShareAcknowledgeRequest(share_session_epoch=member.session_epoch, topics=topics)
    member.session_epoch += 1
    return member.fetched(member.send(ApiKey.SHARE_ACKNOWLEDGE, body)).acknowledge_errors[ORDERS]


def states(group: Group, partition: int = 0) -> list[tuple[int, int, RecordState, int]]:
    runs = group.leader.partitions["orders-id", partition].share_partition.runs
    return [(run.first_offset, run.last_offset, run.state, run.delivery_count) for run in runs]


def open_versions(group: Group) -> set[int]:
    return {version for led in group.leader.partitions.values() for version in led.share_partition.open_writes}


def is_same_after_a_takeover(group: Group) -> bool:
    """True if the rows make the state that the leader has, open writes included."""
    partitions = fold(group.rows).groups[group.group_id].partitions
    return all(
        list(partitions[key].share_partition.runs) == list(led.share_partition.runs)
        and partitions[key].share_partition.open_writes == led.share_partition.open_writes
        for key, led in group.leader.partitions.items()
    )
