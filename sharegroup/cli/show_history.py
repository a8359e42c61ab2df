"""`sharegroup audit history`."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.table import Table

from sharegroup.audit.history import GroupHistory, PartitionHistory, group_history
from sharegroup.audit.record_history import RecordTransition, record_transitions
from sharegroup.cli.output import JSON, output_option, print_json, print_text, table
from sharegroup.cli.site import Site, needs_state_table
from sharegroup.core.record_state import RecordState
from sharegroup.errors import GroupIdNotFoundError
from sharegroup.state.reader import StateTableReader

_COUNTS = ("ACCEPTED", "ARCHIVED", "WAITING", "REDELIVERED", "MOST-DELIVERIES")


@click.command("history")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@click.option("--topic", metavar="TOPIC", help="Topic of the record.")
@click.option("--partition", type=click.IntRange(min=0), help="Partition of the record.")
@click.option("--offset", type=click.IntRange(min=0), help="Offset of the record.")
@needs_state_table
@output_option
def history(
    group_id: str, topic: str | None, partition: int | None, offset: int | None, site: Site, output: str
) -> None:
    """Show what happened to one record, or what became of all records of a group.

    With --topic, --partition and --offset: each transition of the record, with its cause, the member and what that
    said. Without them: for each share-partition how many records were accepted, archived, are waiting still, and
    were delivered more than once; and what each member did.

    \b
    Example:
      sharegroup audit history --group orders
      sharegroup audit history --group orders --topic orders \\
          --partition 0 --offset 17
    """
    rows = StateTableReader(site.state_table_path).rows(group_id=group_id)
    if not rows:
        raise GroupIdNotFoundError(f"Group {group_id} is not in the state table.")
    if topic is not None and partition is not None and offset is not None:
        transitions = record_transitions(rows, topic, partition, offset)
        if output == JSON:
            print_json(transitions)
        else:
            print_text(_transitions_table(transitions))
        return
    if (topic, partition, offset) != (None, None, None):
        raise click.UsageError("A record is named by --topic, --partition and --offset together.")
    found = group_history(group_id, rows)
    if output == JSON:
        print_json(_document(found))
    else:
        print_text(_partitions_table(found), _members_table(found))


def _document(found: GroupHistory) -> dict[str, object]:
    return {
        "group_id": found.group_id,
        "partitions": [
            {
                "topic": partition.topic,
                "topic_id": partition.topic_id,
                "partition": partition.partition,
                "start_offset": partition.start_offset,
                "accepted_count": partition.count(RecordState.ACKNOWLEDGED),
                "archived_count": partition.count(RecordState.ARCHIVED),
                "waiting_count": _waiting_count(partition),
                "redelivered_count": partition.redelivered_count,
                "highest_delivery_count": partition.highest_delivery_count,
                "record_count_by_cause": {c.value: n for c, n in sorted(partition.record_count_by_cause.items())},
            }
            for partition in _sorted(found)
        ],
        "members": [
            {
                "member_id": member_id,
                "client_id": found.client_ids.get(member_id, ""),
                "acquired_count": count,
                "accepted_count": found.accepted_by_member[member_id],
            }
            for member_id, count in sorted(found.acquired_by_member.items())
        ],
    }


def _sorted(found: GroupHistory) -> list[PartitionHistory]:
    return sorted(found.partitions.values(), key=lambda partition: (partition.topic, partition.partition))


def _waiting_count(partition: PartitionHistory) -> int:
    return sum(run.size for run in partition.records if not run.state.is_terminal)


def _partitions_table(found: GroupHistory) -> Table:
    rows = [
        (
            partition.topic,
            partition.partition,
            partition.start_offset,
            partition.count(RecordState.ACKNOWLEDGED),
            partition.count(RecordState.ARCHIVED),
            _waiting_count(partition),
            partition.redelivered_count,
            partition.highest_delivery_count,
        )
        for partition in _sorted(found)
    ]
    return table(("TOPIC", "PARTITION", "START-OFFSET", *_COUNTS), rows, ("PARTITION", "START-OFFSET", *_COUNTS))


def _members_table(found: GroupHistory) -> Table:
    rows = [
        (member_id, found.client_ids.get(member_id, ""), count, found.accepted_by_member[member_id])
        for member_id, count in sorted(found.acquired_by_member.items())
    ]
    return table(("MEMBER", "CLIENT-ID", "ACQUIRED", "ACCEPTED"), rows, ("ACQUIRED", "ACCEPTED"))


def _transitions_table(transitions: list[RecordTransition]) -> Table:
    rows = [
        (
            datetime.fromtimestamp(found.time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            found.cause,
            found.from_state,
            found.to_state,
            found.delivery_count,
            found.client_id or found.member_id,
            found.reason,
        )
        for found in transitions
    ]
    return table(("TIME", "CAUSE", "FROM", "TO", "DELIVERIES", "MEMBER", "REASON"), rows, ("DELIVERIES",))
