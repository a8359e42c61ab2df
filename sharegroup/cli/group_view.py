"""Views of share groups: read from the state table or from the processor, shown as tables or as JSON documents."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol, TypeVar

from rich.console import RenderableType
from rich.table import Table

from sharegroup.cli.flags import Site
from sharegroup.cli.output import counted, table
from sharegroup.client.described_groups import GroupDescription, MemberDescription
from sharegroup.errors import RequestTimedOutError, StateTableError, UnknownTopicError
from sharegroup.logs.port import Log
from sharegroup.protocol.group_description import SHARE

if TYPE_CHECKING:
    from sharegroup.state.fold import FoldedGroup

SHOWN_LOCKS = 10
"""Locks in the overview of a group."""

Result = TypeVar("Result")


class GroupSource(Protocol):
    """A reader of groups: the state table, or the processor."""

    def groups(self) -> list[GroupDescription]:
        """Return all groups, by id."""
        ...

    def group(self, group_id: str) -> GroupDescription:
        """Return one group; raises GroupIdNotFoundError."""
        ...

    def folded(self, group_id: str) -> FoldedGroup:
        """Return one group as its state is; raises GroupIdNotFoundError."""
        ...


def read_groups(site: Site, log: Log, timeout_ms: int, read: Callable[[GroupSource], Result]) -> Result:
    """Read groups from the state table, or from the processor if there is no table that can be read.

    Reading the state table costs the processor nothing, and works while none runs.

    Args:
        timeout_ms: how long to wait for a response of the processor.
        read: reads from a source; it may be called twice.

    Raises:
        StateTableError: neither the state table nor a processor can be read.
        RequestTimedOutError: there is no state table, and no response came in time.
        UnknownTopicError: there is no state table, and no processor was ever started on this log.
    """
    unreadable: StateTableError | None = None
    if site.has_state_table:
        try:
            return read(_table_source(site, log))
        except StateTableError as error:
            unreadable = error
    try:
        return read(_processor_source(site, log, timeout_ms))
    except (RequestTimedOutError, UnknownTopicError):
        if unreadable is None:
            raise
        raise unreadable from None


def _table_source(site: Site, log: Log) -> GroupSource:
    # Imported here: a command that asks the processor needs no delta-rs.
    from sharegroup.client.group_reader import GroupReader

    return GroupReader(log, site.state_table_path, site.settings.broker)


def _processor_source(site: Site, log: Log, timeout_ms: int) -> GroupSource:
    from sharegroup.client.processor_groups import ProcessorGroups

    return ProcessorGroups(log, site.settings.broker, "sharegroup", site.channel_topics, timeout_ms / 1000)


def summary(group: GroupDescription) -> dict[str, object]:
    """Return a group in one JSON object."""
    return {
        "group_id": group.group_id,
        "type": SHARE,
        "protocol": SHARE,
        "state": group.state.value,
        "member_count": len(group.members),
        "partition_count": len(group.partitions),
        "lag": group.lag,
        "in_flight_count": group.in_flight_count,
        "locked_count": group.locked_count,
        "resolving_count": group.resolving_count,
    }


def document(group: GroupDescription) -> dict[str, object]:
    """Return all of a group as one JSON object."""
    return {**asdict(group), **summary(group)}


def groups_table(groups: Sequence[GroupDescription]) -> Table:
    """Return a table with one row for each group."""
    titles = ("GROUP", "TYPE", "PROTOCOL", "STATE", "#MEMBERS", "#PARTITIONS", "LAG", "IN-FLIGHT")
    rows = [
        (
            group.group_id,
            SHARE,
            SHARE,
            group.state.value,
            len(group.members),
            len(group.partitions),
            group.lag,
            group.in_flight_count,
        )
        for group in groups
    ]
    return table(titles, rows, numbers=titles[4:])


def state_table(group: GroupDescription, verbose: bool) -> Table:
    """Return a table with the state of a group."""
    epochs = {"GROUP-EPOCH": group.group_epoch, "ASSIGNMENT-EPOCH": group.assignment_epoch} if verbose else {}
    cells = {"GROUP": group.group_id, "STATE": group.state.value, **epochs, "#MEMBERS": len(group.members)}
    return table(list(cells), [list(cells.values())], numbers=[*epochs, "#MEMBERS"])


def offsets_table(group: GroupDescription, verbose: bool, names_group: bool) -> RenderableType:
    """Return a table with start offset, lag and records in flight of each share-partition."""
    if not group.partitions:
        return f"Share group '{group.group_id}' has no offset information."
    rows = []
    for partition in group.partitions:
        cells: dict[str, object] = {
            **({"GROUP": group.group_id} if names_group else {}),
            "TOPIC": partition.topic,
            "PARTITION": partition.partition,
            **({"LEADER-EPOCH": partition.leader_epoch} if verbose else {}),
            **({"STATE-EPOCH": partition.state_epoch} if verbose else {}),
            "START-OFFSET": partition.start_offset,
            "LAG": partition.lag,
            "IN-FLIGHT": partition.in_flight_count,
            "LOCKED": partition.locked_count,
            **({"RESOLVING": partition.resolving_count} if group.open_writes else {}),
        }
        rows.append(cells)
    return _table_of_cells(rows, {"GROUP", "TOPIC"})


def sinks_table(group: GroupDescription) -> Table:
    """Return a table with the open writes of a group by sink."""
    rows = [
        {
            "SINK": sink.address,
            "OPEN-WRITES": sink.open_count,
            "IN-DOUBT": sink.in_doubt_count,
            "RESOLVING": sink.resolving_count,
            "OLDEST": None if sink.oldest_in_doubt_ms is None else duration_text(sink.oldest_in_doubt_ms / 1_000),
        }
        for sink in group.sinks
    ]
    return _table_of_cells(rows, {"SINK"})


def members_table(group: GroupDescription, verbose: bool, names_group: bool) -> RenderableType:
    """Return a table with the members of a group, and their assignments."""
    if not group.members:
        return f"Share group '{group.group_id}' has no active members."
    rows = []
    for member in group.members:
        cells: dict[str, object] = {
            **({"GROUP": group.group_id} if names_group else {}),
            "CONSUMER-ID": member.member_id,
            "HOST": member.client_host or None,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": sum(len(topic.partitions) for topic in member.assignment),
            **({"MEMBER-EPOCH": member.member_epoch} if verbose else {}),
            "LOCKED": member.locked_count,
            "ASSIGNMENT": _assignment(member),
        }
        rows.append(cells)
    return _table_of_cells(rows, {"GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "ASSIGNMENT"})


def _table_of_cells(rows: Sequence[Mapping[str, object]], texts: Container[str]) -> Table:
    """Return a table of rows, each title → cell; the columns that are no texts are numbers."""
    titles = list(rows[0])
    return table(titles, [list(cells.values()) for cells in rows], [title for title in titles if title not in texts])


def locks_table(group: GroupDescription, verbose: bool, max_locks: int | None = None) -> Iterator[RenderableType]:
    """Return a table with the locks of a group, in the order of their ends.

    Args:
        verbose: True to show member ids, too.
        max_locks: locks to show; None is all.
    """
    if not group.locks:
        yield f"Share group '{group.group_id}' has no acquired records."
        return
    shown = group.locks[:max_locks]
    rows = []
    for lock in shown:
        cells: dict[str, object] = {
            "TOPIC": lock.topic,
            "PARTITION": lock.partition,
            "OFFSETS": f"{lock.first_offset}-{lock.last_offset}",
            "CLIENT-ID": lock.client_id or lock.member_id,
            "DELIVERY": lock.delivery_count,
            "LOCK-ENDS": relative_time_text(lock.remaining_ms),
            **({"CONSUMER-ID": lock.member_id} if verbose else {}),
        }
        rows.append(cells)
    yield table(list(rows[0]), [list(cells.values()) for cells in rows], numbers=["PARTITION", "DELIVERY", "LOCK-ENDS"])
    if len(shown) < len(group.locks):
        yield f"{counted(len(group.locks) - len(shown), 'more lock')}: see --locks."


def problem_text(group: GroupDescription) -> Iterator[str]:
    """Return the problems of a group, and what to do about them."""
    yield from problems(group)
    if group.delayed_count:
        yield f"RECORDS WAIT: {group.delayed_count} were returned with a delay, by a handler that fails or a release."
    if group.quarantine:
        yield (
            "Its requests are refused until it is resumed. Remove the cause, then run:\n"
            f"  sharegroup groups resume --group {group.group_id}"
        )
    elif group.is_paused:
        yield f"Nothing is acquired until it is resumed:\n  sharegroup groups resume --group {group.group_id}"


def problems(group: GroupDescription) -> Iterator[str]:
    """Return one line for each problem of a group."""
    for quarantine in group.quarantine:
        yield f"QUARANTINED: {quarantine.reason}"
    if group.is_paused:
        yield f"PAUSED: {group.pause_reason}" if group.pause_reason else "PAUSED"
    if group.dead_letter_failure:
        yield f"DEAD LETTERS WAIT: {group.dead_letter_failure}"
    for sink in group.late_sinks:
        age = duration_text((sink.oldest_in_doubt_ms or 0) / 1_000)
        yield (
            f"SINK NOT ASKED: {counted(sink.in_doubt_count, 'write')} into {sink.address} of up to {age} ago wait for "
            f"a member that reaches it; else run `sharegroup groups resolve --group {group.group_id}`."
        )


def relative_time_text(after_ms: int) -> str:
    """Return a time relative to now, like `in 3.0 s`."""
    seconds = after_ms / 1000
    return f"in {duration_text(seconds)}" if seconds >= 0 else f"{duration_text(-seconds)} ago"


def duration_text(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _assignment(member: MemberDescription) -> str:
    """Return an assignment as Kafka's tool shows it: `orders:0,1;payments:2`."""
    return ";".join(f"{topic.topic}:{','.join(map(str, topic.partitions))}" for topic in member.assignment)
