"""Compare sinks with the state table: an accepted record's result is there, once, and no other record's is.

1. Each commit of a write that a sink contains has the results of its write's records, but for those that it names
   otherwise. The records are those that the state table says were acquired with the write.
2. These records are accepted, and no two commits have one of them.
3. Each accepted record is in a commit. One whose commit a RESTORE has undone is listed, unless it was accepted again.
4. Where a sink has the columns topic, partition and offset, each row is of an accepted record, and the rows of a record
   are of one commit.

5. Versions of an application id rise in the order of the acquisitions: a sink would skip a lower one.

Writes that are open say nothing yet. What the log of a sink, or the state table, does not have any more is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.audit.sinks.partition_writes import Offsets, PartitionWrite, PartitionWrites
from sharegroup.audit.sinks.sink_history import NO_COMMIT, SinkHistory
from sharegroup.audit.verification.findings import MOST_FINDINGS, Finding
from sharegroup.client.sink_commits import WriteCommit
from sharegroup.core.invariants import Violation
from sharegroup.core.offset_ranges import OffsetRange, RangeMap, gaps
from sharegroup.core.open_writes import OpenWrite
from sharegroup.core.record_state import AcknowledgeType

_RecordSpace = tuple[str, str, int, int]
"""Group, topic id, partition and state epoch: within it, a record is accepted once."""
_NamedRecords = defaultdict[tuple[str, int, str, int], RangeMap[tuple[int, AcknowledgeType]]]
"""Application id, version, topic id and partition → version of the table and acknowledgement of each named record."""
_APP_ID = "sharegroup"


@dataclass(frozen=True, slots=True)
class UndoneOffsets:
    """Accepted records whose results a RESTORE of a sink has undone."""

    sink: str
    commit: int
    group_id: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int


@dataclass
class SinkVerification:
    """The result of a comparison.

    Attributes:
        sinks: addresses that were compared.
        commit_count: commits of writes that were compared.
        accepted_count: accepted records that were compared.
        row_count: rows that were compared by record.
        unread_rows: why the rows of some sinks were not compared.
        open_count: writes that are open: nothing is known of their records yet.
        unchecked_count: writes that one of the two sides does not show any more, or that are of another state table.
        other_sinks: addresses of sinks of the group's writes that were not named.
        undone: records whose results a RESTORE has undone, and that were not accepted again.
        findings: the first `MOST_FINDINGS` of all.
        finding_count: number of all; what is undone counts, too.
    """

    sinks: list[str] = field(default_factory=list)
    commit_count: int = 0
    accepted_count: int = 0
    row_count: int = 0
    unread_rows: list[str] = field(default_factory=list)
    open_count: int = 0
    unchecked_count: int = 0
    other_sinks: list[str] = field(default_factory=list)
    undone: list[UndoneOffsets] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    finding_count: int = 0

    def add(self, location: str, invariant: str, detail: str) -> None:
        """Add a finding; those beyond the bound are only counted."""
        self.finding_count += 1
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(location, Violation(invariant, detail)))


class Reconciliation:
    """The comparison of the writes of a state table with its sinks.

    Args:
        partitions: the writes of all share-partitions.
        lost_state_ids: ids of states of which the table lacks commits, since it began again with an older copy.
    """

    def __init__(self, partitions: Iterable[PartitionWrites], lost_state_ids: Collection[str] = ()) -> None:
        self.result = SinkVerification()
        self._lost_state_ids = lost_state_ids
        self._lost_commits: dict[str, set[int]] = defaultdict(set)
        """Table id → commits of writes that were lost with the end of a state."""
        self._by_write: dict[tuple[str, int], list[PartitionWrite]] = defaultdict(list)
        """(Application id, version) → the write's records by share-partition."""
        self._open: set[tuple[str, int]] = set()
        self._first_offsets: dict[str, int] = {}
        """Group → the first message of which the state table has a row."""
        for of_partition in partitions:
            group_id, first = of_partition.group_id, of_partition.first_request_offset
            self._first_offsets[group_id] = min(first, self._first_offsets.get(group_id, first))
            for each in of_partition.writes:
                key = (each.write.app_id, each.write.version)
                self._by_write[key].append(each)
                if each.write.version in of_partition.open_versions:
                    self._open.add(key)
        self._state_ids = {app_id.split("/", 2)[1] for app_id, _ in self._by_write}
        self._check_versions()
        self._accepted_in: dict[str, dict[tuple[str, int], list[Offsets]]] = {}
        """Table id → (topic, partition) → the accepted records of each write, or all of one that is open."""

    def compare(self, history: SinkHistory) -> None:
        """Compare the commits of a sink with the writes into it."""
        writes = {
            key: of_write for key, of_write in self._by_write.items() if of_write[0].write.table_id == history.table_id
        }
        self.result.sinks.append(history.address)
        self.result.open_count += len(self._open & writes.keys())
        results: dict[_RecordSpace, RangeMap[int]] = defaultdict(RangeMap)
        undone: dict[_RecordSpace, RangeMap[int]] = defaultdict(RangeMap)
        compared: set[int] = set()
        named = _named_records(history)
        for commit in history.commits:
            if commit.metadata.is_fence:
                continue
            of_write = writes.get((commit.metadata.app_id, commit.metadata.version))
            if of_write is None:
                self._unknown(history, commit)
                continue
            is_undone = commit.table_version in history.undone
            compared.update([] if is_undone else [commit.table_version])
            for each in of_write:
                records = _accepted_by(commit, each, named)
                self._note_commit(history, commit, each, records, undone if is_undone else results, is_undone=is_undone)
        self.result.commit_count += len(compared)
        for key, of_write in writes.items():
            for each in of_write:
                self._check_accepted(
                    history, each, results[_space(each)], undone[_space(each)], is_open=key in self._open
                )
        self._list_undone(history, writes, named, results)

    def compare_rows(self, history: SinkHistory, rows: pa.Table) -> None:
        """Compare the rows of a sink with the records that were accepted into it.

        Args:
            rows: topic, partition, offset and commit of each row; those without one of them name no record.
        """
        rows = rows.drop_null()
        self.result.row_count += rows.num_rows
        accepted = self._accepted_in.get(history.table_id, {})
        if lost := self._lost_commits.get(history.table_id):
            rows = rows.filter(~pc.field("commit").isin(sorted(lost)))
        grouped = rows.group_by(["topic", "partition", "offset", "commit"]).aggregate([])
        for topic, partition in _keys(grouped):
            of_key = grouped.filter((pc.field("topic") == topic) & (pc.field("partition") == partition))
            offsets, commits = (of_key[name].to_numpy() for name in ("offset", "commit"))
            sets = accepted.get((topic, partition), ())
            for offset in np.unique(offsets[_counts(offsets, sets) == 0]).tolist():
                self.result.add(
                    f"sink {history.address}",
                    "row_is_of_an_accepted_record",
                    f"a row of {topic}-{partition} offset {offset}, which is not accepted",
                )
            of_writes = commits != NO_COMMIT
            unique, counts = np.unique(offsets[of_writes], return_counts=True)
            # Several states, or groups, may have accepted a record: as often it may be there.
            allowed = _counts(unique, sets)
            for offset in unique[(counts > allowed) & (allowed > 0)].tolist():
                of_offset = sorted(commits[(offsets == offset) & of_writes].tolist())
                self.result.add(
                    f"sink {history.address}",
                    "record_is_in_one_commit",
                    f"rows of {topic}-{partition} offset {offset} are in commits {of_offset}",
                )

    def finish(self) -> SinkVerification:
        """Return the result, with the sinks that were not compared."""
        self.result.other_sinks = sorted(
            {
                of_write[0].write.address
                for of_write in self._by_write.values()
                if of_write[0].write.table_id not in self._accepted_in
            }
        )
        return self.result

    def _check_versions(self) -> None:
        by_app_id: dict[str, list[OpenWrite]] = defaultdict(list)
        for of_write in self._by_write.values():
            by_app_id[of_write[0].write.app_id].append(of_write[0].write)
        for app_id, writes in by_app_id.items():
            writes.sort(key=lambda write: (write.opened_ms, write.version))
            for before, after in pairwise(writes):
                if after.version < before.version:
                    self.result.add(
                        f"application id {app_id}",
                        "versions_of_an_application_id_rise",
                        f"write {after.version} was opened after write {before.version}",
                    )

    def _unknown(self, history: SinkHistory, commit: WriteCommit) -> None:
        """Handle a commit whose write the state table does not have."""
        parts = commit.metadata.app_id.split("/", 2)
        if len(parts) < 3 or parts[0] != _APP_ID or parts[1] not in {*self._state_ids, *self._lost_state_ids}:
            self.result.unchecked_count += 1
            return
        if parts[1] in self._lost_state_ids:
            self._lost_commits[history.table_id].add(commit.table_version)
            self.result.unchecked_count += 1
            return
        group_id = parts[2].rsplit("/", 2)[0]
        first = self._first_offsets.get(group_id)
        if first is None or commit.metadata.version < first or commit.table_version in history.undone:
            self.result.unchecked_count += 1
            return
        self.result.add(
            _location(history, commit),
            "commit_is_of_a_write",
            f"write {commit.metadata.version} of {commit.metadata.app_id} was never opened",
        )

    def _note_commit(
        self,
        history: SinkHistory,
        commit: WriteCommit,
        each: PartitionWrite,
        records: Iterable[OffsetRange],
        results: dict[_RecordSpace, RangeMap[int]],
        *,
        is_undone: bool,
    ) -> None:
        """Note the records that a commit has, and check that they are accepted, and in no other commit."""
        space = results[_space(each)]
        for first, last in records:
            if not is_undone:
                for at, until, other in space.overlapping(first, last):
                    self.result.add(
                        _location(history, commit),
                        "record_is_in_one_commit",
                        f"{each.location} offsets {at}-{until} are in commit {other}, too",
                    )
                if (each.write.app_id, each.write.version) not in self._open:
                    self._check_has_acceptance(history, commit, each, first, last)
            space.assign(first, last, commit.table_version)

    def _check_has_acceptance(
        self, history: SinkHistory, commit: WriteCommit, each: PartitionWrite, first: int, last: int
    ) -> None:
        accepted = [(at, until) for at, until, _ in each.accepted.overlapping(first, last)]
        for at, until in gaps(first, last, accepted):
            self.result.add(
                _location(history, commit),
                "result_is_of_an_accepted_record",
                f"{each.location} offsets {at}-{until} of write {each.write.version} are not accepted",
            )

    def _check_accepted(
        self,
        history: SinkHistory,
        each: PartitionWrite,
        results: RangeMap[int],
        undone: RangeMap[int],
        *,
        is_open: bool,
    ) -> None:
        """Check that the accepted records of a write are in a commit."""
        by_record = self._accepted_in.setdefault(history.table_id, {}).setdefault((each.topic, each.partition), [])
        by_record.append(each.acquired if is_open else each.accepted)
        if not each.is_whole or each.write.sink_version + 1 < history.first_version:
            self.result.unchecked_count += not is_open
            return
        for first, last, _ in each.accepted:
            self.result.accepted_count += last - first + 1
            present = [(at, until) for at, until, _ in results.overlapping(first, last)]
            present += [(at, until) for at, until, _ in undone.overlapping(first, last)]
            for at, until in gaps(first, last, sorted(present)):
                self.result.add(
                    f"sink {history.address}",
                    "accepted_record_has_its_result",
                    f"{each.location} offsets {at}-{until} are accepted by write {each.write.version}, and no commit "
                    "has it",
                )

    def _list_undone(
        self,
        history: SinkHistory,
        writes: dict[tuple[str, int], list[PartitionWrite]],
        named: _NamedRecords,
        results: dict[_RecordSpace, RangeMap[int]],
    ) -> None:
        """List the records whose results are undone, unless another state has accepted them since."""
        present: dict[tuple[str, str, int], Offsets] = defaultdict(RangeMap)
        for space, of_space in results.items():
            for first, last, _ in of_space:
                present[space[:3]].assign(first, last, None)
        for commit in history.commits:
            if commit.table_version not in history.undone or commit.metadata.is_fence:
                continue
            for each in writes.get((commit.metadata.app_id, commit.metadata.version), ()):
                again = present[_space(each)[:3]]
                for first, last in _accepted_by(commit, each, named):
                    for at, until in gaps(first, last, [(a, b) for a, b, _ in again.overlapping(first, last)]):
                        self._undone(history, commit, each, at, until)

    def _undone(self, history: SinkHistory, commit: WriteCommit, each: PartitionWrite, first: int, last: int) -> None:
        offsets = UndoneOffsets(
            history.address, commit.table_version, each.group_id, each.topic, each.partition, first, last
        )
        self.result.finding_count += 1
        if len(self.result.undone) < MOST_FINDINGS:
            self.result.undone.append(offsets)


def _named_records(history: SinkHistory) -> _NamedRecords:
    """Return the records that the commits of each write name, in all of its parts."""
    named: _NamedRecords = defaultdict(RangeMap)
    for commit in history.commits:
        write = commit.metadata
        for partition in write.partitions:
            of_write = named[write.app_id, write.version, partition.topic_id, partition.partition_index]
            for each in partition.ranges:
                of_write.assign(each.first_offset, each.last_offset, (commit.table_version, each.acknowledge_type))
    return named


def _accepted_by(commit: WriteCommit, each: PartitionWrite, named: _NamedRecords) -> Iterator[OffsetRange]:
    """Yield the records of a write that a commit has results of; those that no part names are in the last one."""
    write = commit.metadata
    of_write = named.get((write.app_id, write.version, each.topic_id, each.partition), RangeMap())
    for first, last, _ in each.acquired:
        parts = of_write.overlapping(first, last)
        for at, until, (table_version, kind) in parts:
            if table_version == commit.table_version and kind is AcknowledgeType.ACCEPT:
                yield at, until
        if not write.names_all:
            yield from gaps(first, last, [(at, until) for at, until, _ in parts])


def _space(each: PartitionWrite) -> _RecordSpace:
    return each.group_id, each.topic_id, each.partition, each.state_epoch


def _location(history: SinkHistory, commit: WriteCommit) -> str:
    return f"sink {history.address} commit {commit.table_version}"


def _keys(rows: pa.Table) -> list[tuple[str, int]]:
    keys = rows.group_by(["topic", "partition"]).aggregate([])
    return sorted(zip(keys["topic"].to_pylist(), keys["partition"].to_pylist(), strict=True))


def _counts(offsets: np.ndarray, accepted: Sequence[Offsets]) -> np.ndarray:
    """Return how often each offset is in the sets."""
    counts = np.zeros(len(offsets), np.int64)
    for ranges in accepted:
        if len(ranges):
            first_offsets, last_offsets = (
                np.array(ends, np.int64) for ends in zip(*((a, b) for a, b, _ in ranges), strict=True)
            )
            index = np.searchsorted(first_offsets, offsets, side="right") - 1
            counts += (index >= 0) & (offsets <= last_offsets[np.maximum(index, 0)])
    return counts
