"""A sink in memory, as a Delta table is one: commits with transactions, and the conflict check of each commit.

A commit conflicts if another one of its application id came after the snapshot that it starts from. A writer checks the
version of that snapshot itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sharegroup.client.sink_commits import WriteCommit, WriteMetadata, transaction_version
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.protocol.sink_writes import Sink
from tests.simulation.world import World

Record = tuple[str, int, int]
"""Topic id, partition, offset."""


class Snapshot(NamedTuple):
    """The knowledge of a writer at its beginning: the sink's version, and the transaction of one id."""

    version: int
    transaction: int


class SimulatedSink:
    """A table.

    Args:
        world: time.

    Attributes:
        results: (version of the write, record) → results of accepted records.
        late: commits that writers may still make, however late.
        undecided: writes whose commits the log does not show, although their transaction is known.
    """

    def __init__(self, world: World, table_id: str) -> None:
        self.table_id = table_id
        self.away_until_ms = 0
        self.results: Counter[tuple[int, Record]] = Counter()
        self.late: set[Callable[[], None]] = set()
        self.undecided: list[str] = []
        self._world = world
        self._commits: list[WriteCommit] = []
        self._transactions: dict[str, int] = {}

    @property
    def is_away(self) -> bool:
        """Return True while nobody reaches it."""
        return self._world.now_ms < self.away_until_ms

    @property
    def description(self) -> Sink:
        """The sink as a fetch names it."""
        return Sink(address=f"/sinks/{self.table_id}", table_id=self.table_id, version=len(self._commits))

    def snapshot(self, app_id: str) -> Snapshot:
        """Return the present state, for a writer that begins."""
        return Snapshot(len(self._commits), self._transactions.get(app_id, -1))

    def has_conflict(self, metadata: WriteMetadata, snapshot: Snapshot) -> bool:
        """Return True if another commit of its application id came after the snapshot of a commit."""
        return any(commit.metadata.app_id == metadata.app_id for commit in self._commits[snapshot.version :])

    def commit(self, metadata: WriteMetadata, records: Iterable[Record], snapshot: Snapshot) -> bool:
        """Commit the results of records, but for those that are not accepted; return False if it conflicts."""
        if self.has_conflict(metadata, snapshot):
            return False
        self._commits.append(WriteCommit(len(self._commits) + 1, metadata))
        self._transactions[metadata.app_id] = transaction_version(metadata.version, metadata.part)
        self.results.update((metadata.version, record) for record in records if _is_accepted(metadata, record))
        return True

    def commits_of(self, app_id: str, version: int, after_version: int) -> list[WriteCommit]:
        """Return the commits of a write that the log has after a version."""
        return [
            commit
            for commit in self._commits[after_version:]
            if (commit.metadata.app_id, commit.metadata.version) == (app_id, version)
        ]

    def wake_all(self) -> None:
        """Let every writer that has begun go on."""
        while self.late:
            for commit in list(self.late):
                commit()


def _is_accepted(metadata: WriteMetadata, record: Record) -> bool:
    key: PartitionKey = record[:2]
    named: RangeMap[AcknowledgeType] = RangeMap()
    for partition in metadata.partitions:
        if (partition.topic_id, partition.partition_index) == key:
            for each in partition.ranges:
                named.assign(each.first_offset, each.last_offset, each.acknowledge_type)
    kinds = [kind for _, _, kind in named.overlapping(record[2], record[2])]
    return kinds == [AcknowledgeType.ACCEPT] if kinds else not metadata.names_all
