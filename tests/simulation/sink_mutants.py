"""Known bugs of writes into sinks, in the engine, its actors and members, put in on purpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.actor import group_writes, leader
from sharegroup.actor.initialization import UninitializedPartitions
from sharegroup.actor.state_lifetimes import StateLifetimes
from sharegroup.client.sink_commits import CLOSING_PART, WriteCommit, WriteMetadata, resolution
from sharegroup.core import share_partition
from sharegroup.core.acknowledgement import transition_of
from sharegroup.core.open_writes import Resolution
from sharegroup.core.records import SharePartitionLimits, SharePartitionRecord
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.sink_writes import UnresolvedWrite
from tests.simulation.mutant import Mutant
from tests.simulation.schedule import FIRST_SEED_WITH_SINKS, SEEDS_BETWEEN_SINKS
from tests.simulation.sink import SimulatedSink, Snapshot
from tests.simulation.sink_member import SinkMember
from tests.simulation.sink_writer import SinkWriter


def _report_the_own_decision(patch: pytest.MonkeyPatch) -> None:
    def report(writer: SinkWriter, write: UnresolvedWrite, own: WriteMetadata) -> None:
        is_closed = own.part == CLOSING_PART
        writer._send(resolution(write, write.table_id, [WriteCommit(0, own)], is_closed=is_closed))

    patch.setattr(SinkWriter, "read_back", report)


def _check_no_version(patch: pytest.MonkeyPatch) -> None:
    _check_no_version_of_the_snapshot(patch)
    patch.setattr(SimulatedSink, "has_conflict", lambda *_: False)


def _check_no_version_of_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Only a commit after the snapshot of a writer refuses it."""
    write = SinkWriter.write
    snapshot = SimulatedSink.snapshot

    def write_unchecked(writer: SinkWriter, *arguments: object, **keywords: object) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(
                SimulatedSink, "snapshot", lambda sink, app_id: Snapshot(snapshot(sink, app_id).version, -1)
            )
            write(writer, *arguments, **keywords)  # type: ignore[arg-type]

    patch.setattr(SinkWriter, "write", write_unchecked)


def _read_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SinkWriter, "fence", lambda writer, write, _: writer._read(write))


def _read_the_last_commits_only(patch: pytest.MonkeyPatch) -> None:
    commits_of = SimulatedSink.commits_of

    def last_commits_of(sink: SimulatedSink, app_id: str, version: int, after_version: int) -> list[WriteCommit]:
        return commits_of(sink, app_id, version, max(after_version, sink.description.version - 3))

    patch.setattr(SimulatedSink, "commits_of", last_commits_of)


def _give_up_what_has_begun(patch: pytest.MonkeyPatch) -> None:
    """A member says that its write has not begun, although it may still commit."""
    patch.setattr(SinkMember, "_acknowledgement", lambda _, held, kind: held.acknowledgement(kind))


def _make_records_available_at_the_end_of_a_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_partition, "lock_end_of", transition_of)


def _use_one_application_id(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_writes._Slots, "use", lambda *_: None)


def _use_versions_that_fall(patch: pytest.MonkeyPatch) -> None:
    """A fetch that waited gets its records after a later one, with the same application id."""

    def any_free(slots: group_writes._Slots, _: int, most: int) -> int | None:
        return next((slot for slot in range(most) if slot not in slots._used), None)

    patch.setattr(group_writes._Slots, "free_for", any_free)


def _close_a_write_with_each_part(patch: pytest.MonkeyPatch) -> None:
    resolve = SharePartition.resolve

    def resolve_whole(
        partition: SharePartition, version: int, resolved: Resolution, limits: SharePartitionLimits, now_ms: int
    ) -> list[SharePartitionRecord]:
        resolved.is_closed = True
        return resolve(partition, version, resolved, limits, now_ms)

    patch.setattr(SharePartition, "resolve", resolve_whole)


def _end_states_with_open_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader, "check_no_open_writes", lambda *_: None)
    patch.setattr(UninitializedPartitions, "_waits_for_writes", lambda *_: False)
    patch.setattr(StateLifetimes, "_postpone", lambda *_: False)


def _hand_writes_out_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_writes, "HAND_OUT_INTERVAL_MS", 1 << 40)


def _mutant(name: str, apply: Callable[[pytest.MonkeyPatch], None]) -> Mutant:
    return Mutant(name, apply, FIRST_SEED_WITH_SINKS, SEEDS_BETWEEN_SINKS)


SINK_MUTANTS = (
    _mutant("a writer does not read its commit back", _report_the_own_decision),
    _mutant("neither writers nor the sink check versions", _check_no_version),
    _mutant("a writer does not check the version of its snapshot", _check_no_version_of_the_snapshot),
    _mutant("a lookup does not fence", _read_without_a_fence),
    _mutant("a lookup looks at the last commits only", _read_the_last_commits_only),
    _mutant("a member gives up a write that has begun", _give_up_what_has_begun),
    _mutant("a lock that ends makes records available", _make_records_available_at_the_end_of_a_lock),
    _mutant("all writes have one application id", _use_one_application_id),
    _mutant("versions of an application id fall", _use_versions_that_fall),
    _mutant("each part of a write closes it", _close_a_write_with_each_part),
    _mutant("states end while writes are open", _end_states_with_open_writes),
    _mutant("writes are handed out once", _hand_writes_out_once),
)
