"""Open writes of a group, and the warning where nobody has asked their sink for long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sharegroup.core.open_writes import WriteOpened
from sharegroup.core.record_state import RecordState
from sharegroup.core.runs import RunMap
from sharegroup.state.fold import FoldedGroup

LATE_MS = 60_000
"""A member with the sink resolves a write in doubt within seconds; after this time beyond its lock, none can."""


@dataclass(frozen=True, slots=True)
class OpenWriteDescription:
    """A write of results that is not closed.

    Attributes:
        app_id: application id of its commits.
        address: path or URI of its sink.
        table_id: id of that table.
        opened_ms: time of the acquisition; epoch ms.
        age_ms: time since then.
        locked_count: its records that a member holds.
        resolving_count: its records that are RESOLVING.
        is_in_doubt: True if somebody has to ask the sink.
    """

    version: int
    app_id: str
    address: str
    table_id: str
    opened_ms: int
    age_ms: int
    locked_count: int
    resolving_count: int
    is_in_doubt: bool


@dataclass(frozen=True, slots=True)
class SinkDescription:
    """The open writes of a group into one sink.

    Attributes:
        open_count: writes that are not closed.
        in_doubt_count: those of which somebody has to ask the sink.
        resolving_count: records that are RESOLVING.
        oldest_in_doubt_ms: time since the acquisition of the oldest write in doubt; None without one.
    """

    address: str
    table_id: str
    open_count: int
    in_doubt_count: int
    resolving_count: int
    oldest_in_doubt_ms: int | None


def described_writes(group: FoldedGroup, now_ms: int) -> tuple[OpenWriteDescription, ...]:
    """Return the open writes of a group, the oldest first."""
    writes: dict[int, OpenWriteDescription] = {}
    for folded in group.partitions.values():
        engine = folded.share_partition
        for opened in engine.open_writes.values():
            one = _described(opened, engine.runs, now_ms)
            known = writes.get(one.version)
            writes[one.version] = one if known is None else _together(known, one)
    return tuple(writes[version] for version in sorted(writes))


def described_sinks(writes: Iterable[OpenWriteDescription]) -> tuple[SinkDescription, ...]:
    """Return the sinks of open writes, by address."""
    sinks: dict[str, list[OpenWriteDescription]] = {}
    for write in writes:
        sinks.setdefault(write.table_id, []).append(write)
    described = (
        SinkDescription(
            of_sink[-1].address,
            table_id,
            len(of_sink),
            sum(write.is_in_doubt for write in of_sink),
            sum(write.resolving_count for write in of_sink),
            max((write.age_ms for write in of_sink if write.is_in_doubt), default=None),
        )
        for table_id, of_sink in sinks.items()
    )
    return tuple(sorted(described, key=lambda sink: (sink.address, sink.table_id)))


def late_sinks(sinks: Iterable[SinkDescription], config: Mapping[str, str]) -> list[SinkDescription]:
    """Return the sinks with a write in doubt that somebody with the sink would have resolved by now.

    Args:
        config: values in force.
    """
    late_ms = int(config["share.record.lock.duration.ms"]) + LATE_MS
    return [sink for sink in sinks if sink.oldest_in_doubt_ms is not None and sink.oldest_in_doubt_ms > late_ms]


def _described(opened: WriteOpened, runs: RunMap, now_ms: int) -> OpenWriteDescription:
    write = opened.write
    sizes = {RecordState.ACQUIRED: 0, RecordState.RESOLVING: 0}
    for run in runs.overlapping(opened.first_offset, opened.last_offset):
        if run.write_version == write.version:
            sizes[run.state] += run.size
    locked_count, resolving_count = sizes[RecordState.ACQUIRED], sizes[RecordState.RESOLVING]
    return OpenWriteDescription(
        write.version,
        write.app_id,
        write.address,
        write.table_id,
        write.opened_ms,
        now_ms - write.opened_ms,
        locked_count,
        resolving_count,
        resolving_count > 0 or not locked_count,
    )


def _together(one: OpenWriteDescription, other: OpenWriteDescription) -> OpenWriteDescription:
    """Return a write that is open in several share-partitions."""
    locked_count = one.locked_count + other.locked_count
    resolving_count = one.resolving_count + other.resolving_count
    return replace(
        one,
        locked_count=locked_count,
        resolving_count=resolving_count,
        is_in_doubt=resolving_count > 0 or not locked_count,
    )
