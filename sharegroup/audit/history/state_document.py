"""The state of a group as a JSON object: all that its fold has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sharegroup.coordinator.group_state import GroupState, Member
from sharegroup.core.open_writes import WriteOpened
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.runs import RunMap
from sharegroup.state.fold import FoldedGroup, FoldedPartition


def group_document(group: FoldedGroup, now_ms: int) -> dict[str, Any]:
    """Return a group with its members, configuration and share-partitions.

    Args:
        now_ms: the time of its state, from which the rest of locks and delays is counted; epoch ms.
    """
    metadata = group.metadata
    folded = sorted(group.partitions.values(), key=lambda partition: (partition.topic, partition.partition))
    members = sorted(metadata.members.values(), key=lambda member: (member.client_id, member.member_id))
    return {
        "group_id": group.group_id,
        "state": metadata.name,
        "group_epoch": metadata.group_epoch,
        "assignment_epoch": metadata.assignment_epoch,
        "leader_epoch": group.leader_epoch,
        "config": dict(sorted(metadata.config_overrides.items())),
        "is_paused": metadata.pause is not None,
        "quarantine": {role.value: reason for role, reason in sorted(group.failures.items())},
        "dead_letter_failure": group.dead_letter_failure,
        "members": [_member_document(metadata, member) for member in members],
        "partitions": [_partition_document(metadata, partition, now_ms) for partition in folded],
    }


def topic_name(metadata: GroupState, topic_id: str) -> str:
    """Return the name of a group's topic; its id when the group does not have it any more."""
    return metadata.topics[topic_id].topic if topic_id in metadata.topics else topic_id


def client_id_of(metadata: GroupState, member_id: str) -> str:
    """Return the client id of a member; "" when it is no member."""
    return metadata.members[member_id].client_id if member_id in metadata.members else ""


def _member_document(metadata: GroupState, member: Member) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "client_process": member.client_process,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "assignment": [
            {"topic": topic_name(metadata, topic_id), "topic_id": topic_id, "partitions": list(partitions)}
            for topic_id, partitions in sorted(member.assignment.items())
            if partitions
        ],
    }


def _partition_document(metadata: GroupState, folded: FoldedPartition, now_ms: int) -> dict[str, Any]:
    engine = folded.share_partition
    return {
        "topic": folded.topic,
        "topic_id": folded.topic_id,
        "partition": folded.partition,
        "start_offset": engine.start_offset,
        "next_offset": engine.next_offset,
        "delivery_complete_count": engine.delivery_complete_count,
        "state_epoch": folded.state_epoch,
        "snapshot_epoch": folded.epochs.snapshot_epoch,
        "request_offset": folded.request_offset,
        "runs": [_run_document(run) for run in engine.runs],
        "locks": list(_locks(metadata, engine.runs, now_ms)),
        "open_writes": [_write_document(opened, now_ms) for opened in engine.open_writes.values()],
    }


def _run_document(run: Run) -> dict[str, Any]:
    return {
        "first_offset": run.first_offset,
        "last_offset": run.last_offset,
        "state": run.state.name,
        "delivery_count": run.delivery_count,
        "member_id": run.member_id,
        "deadline_ms": run.deadline_ms,
        "is_suspect": run.is_suspect,
        "write_version": None if run.write_version == NO_WRITE else run.write_version,
        "intended": None if run.intended is None else run.intended.value,
    }


def _write_document(opened: WriteOpened, now_ms: int) -> dict[str, Any]:
    return {
        **opened.write._asdict(),
        "age_ms": now_ms - opened.write.opened_ms,
        "first_offset": opened.first_offset,
        "last_offset": opened.last_offset,
    }


def _locks(metadata: GroupState, runs: RunMap, now_ms: int) -> Iterator[dict[str, Any]]:
    for run in runs:
        if run.state is RecordState.ACQUIRED:
            yield {
                "first_offset": run.first_offset,
                "last_offset": run.last_offset,
                "member_id": run.member_id,
                "client_id": client_id_of(metadata, run.member_id),
                "delivery_count": run.delivery_count,
                "deadline_ms": run.deadline_ms,
                "remaining_ms": run.deadline_ms - now_ms,
            }
