"""Descriptions of groups, as tables with the columns of Kafka's tools, and as JSON documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import RenderableType
from rich.table import Table

from sharegroup.cli.output import counted, table
from sharegroup.client.group_description import GroupDescription, LockDescription, MemberDescription

SHOWN_LOCKS = 10
"""Locks in the overview of a group."""


def summary(group: GroupDescription) -> dict[str, object]:
    """A group in one JSON object."""
    return {
        "group_id": group.group_id,
        "state": group.state.value,
        "member_count": len(group.members),
        "partition_count": len(group.partitions),
        "lag": group.lag,
        "in_flight_count": group.in_flight_count,
        "locked_count": group.locked_count,
    }


def document(group: GroupDescription) -> dict[str, object]:
    """All of a group as one JSON object."""
    return {**asdict(group), **summary(group)}


def groups_table(groups: Sequence[GroupDescription]) -> Table:
    """One line a group."""
    titles = ("GROUP", "STATE", "#MEMBERS", "#PARTITIONS", "LAG", "IN-FLIGHT")
    rows = [
        (
            group.group_id,
            group.state.value,
            len(group.members),
            len(group.partitions),
            group.lag,
            group.in_flight_count,
        )
        for group in groups
    ]
    return table(titles, rows, numbers=titles[2:])


def state_table(group: GroupDescription, verbose: bool) -> Table:
    """The group's state."""
    epochs = {"GROUP-EPOCH": group.group_epoch, "ASSIGNMENT-EPOCH": group.assignment_epoch} if verbose else {}
    cells = {"GROUP": group.group_id, "STATE": group.state.value, **epochs, "#MEMBERS": len(group.members)}
    return table(list(cells), [list(cells.values())], numbers=[*epochs, "#MEMBERS"])


def offsets_table(group: GroupDescription, verbose: bool, names_group: bool) -> RenderableType:
    """Start offset, lag and records in flight of each share-partition."""
    if not group.partitions:
        return f"Share group '{group.group_id}' has no offset information."
    rows = []
    for found in group.partitions:
        cells: dict[str, object] = {
            **({"GROUP": group.group_id} if names_group else {}),
            "TOPIC": found.topic,
            "PARTITION": found.partition,
            **({"STATE-EPOCH": found.state_epoch} if verbose else {}),
            "START-OFFSET": found.start_offset,
            "LAG": found.lag,
            "IN-FLIGHT": found.in_flight_count,
            "LOCKED": found.locked_count,
        }
        rows.append(cells)
    titles = list(rows[0])
    return table(titles, [list(cells.values()) for cells in rows], numbers=titles[titles.index("PARTITION") :])


def members_table(group: GroupDescription, verbose: bool, names_group: bool) -> RenderableType:
    """Who is in the group, and what each may fetch."""
    if not group.members:
        return f"Share group '{group.group_id}' has no active members."
    rows = []
    for member in group.members:
        cells: dict[str, object] = {
            **({"GROUP": group.group_id} if names_group else {}),
            "CONSUMER-ID": member.member_id,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": sum(len(topic.partitions) for topic in member.assignment),
            **({"MEMBER-EPOCH": member.member_epoch} if verbose else {}),
            "LOCKED": member.locked_count,
            "ASSIGNMENT": _assignment(member),
        }
        rows.append(cells)
    titles = list(rows[0])
    numbers = [title for title in titles if title in ("#PARTITIONS", "MEMBER-EPOCH", "LOCKED")]
    return table(titles, [list(cells.values()) for cells in rows], numbers=numbers)


def locks_table(group: GroupDescription, verbose: bool, most: int | None = None) -> Iterator[RenderableType]:
    """Records that members hold, the lock that ends first first.

    Args:
        group: the group.
        verbose: whether member ids are shown, too.
        most: how many; None is all.
    """
    if not group.locks:
        yield f"Share group '{group.group_id}' has no acquired records."
        return
    shown = group.locks[:most]
    rows = []
    for lock in shown:
        cells: dict[str, object] = {
            "TOPIC": lock.topic,
            "PARTITION": lock.partition,
            "OFFSETS": f"{lock.first_offset}-{lock.last_offset}",
            "CLIENT-ID": lock.client_id or lock.member_id,
            "DELIVERY": lock.delivery_count,
            "LOCK-ENDS": remaining(lock),
            **({"CONSUMER-ID": lock.member_id} if verbose else {}),
        }
        rows.append(cells)
    yield table(list(rows[0]), [list(cells.values()) for cells in rows], numbers=["PARTITION", "DELIVERY", "LOCK-ENDS"])
    if len(shown) < len(group.locks):
        yield f"{counted(len(group.locks) - len(shown), 'more lock')}: see --locks."


def trouble_text(group: GroupDescription) -> Iterator[str]:
    """What an administrator has to see to: why the group stands still, or why its dead letters wait."""
    yield from troubles(group)
    if group.quarantine:
        yield (
            "Its requests are refused until it is resumed. See to the cause, then run:\n"
            f"  sharegroup groups resume --group {group.group_id}"
        )


def troubles(group: GroupDescription) -> Iterator[str]:
    """One line for each thing that is wrong with a group."""
    for failed in group.quarantine:
        yield f"QUARANTINED: {failed.reason}"
    if group.dead_letter_failure:
        yield f"DEAD LETTERS WAIT: {group.dead_letter_failure}"


def remaining(lock: LockDescription) -> str:
    """When a lock ends, for people."""
    seconds = lock.remaining_ms / 1000
    return f"in {duration_text(seconds)}" if seconds >= 0 else f"{duration_text(-seconds)} ago"


def duration_text(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _assignment(member: MemberDescription) -> str:
    """As in Kafka's tool: `orders:0,1;payments:2`."""
    return ";".join(f"{found.topic}:{','.join(map(str, found.partitions))}" for found in member.assignment)
