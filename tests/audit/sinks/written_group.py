"""A group that writes into a Delta table: its rows, and what audits compare them with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import write_deltalake

from sharegroup.actor.sink_checks import EXACTLY_ONCE_KEY
from sharegroup.audit.sinks.reconcile import SinkVerification
from sharegroup.audit.sinks.verify_sinks import verify_sinks
from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.sink_commits import WritePart
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.rows import StateRow
from sharegroup.protocol.sink_writes import AcquisitionWrite, Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolveWriteRequest
from sharegroup.state.fold import fold_order
from sharegroup.state.row_filter import RowFilter
from tests.actor.group_harness import Group, Member, group_with

Summary = TypeVar("Summary")
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.int64())])
ORDERS = ("orders-id", 0)


class RowsInMemory:
    """The rows of a group as a source of audits."""

    lost_commits: Sequence[tuple[int, int]] = ()

    def __init__(self, rows: Iterable[StateRow]) -> None:
        self._rows = sorted(rows, key=fold_order)

    def rows(self, row_filter: RowFilter) -> Iterable[StateRow]:
        return self._rows

    def by_partition(
        self, row_filter: RowFilter, summarize: Callable[[Iterable[StateRow]], Summary]
    ) -> Iterator[Summary]:
        partitions: dict[tuple[str, int], list[StateRow]] = defaultdict(list)
        for row in self._rows:
            if row.partition >= 0 and row.topic_id:
                partitions[row.topic_id, row.partition].append(row)
        return map(summarize, partitions.values())


class WrittenGroup:
    """A group with one member, which writes the records of `orders` into a table.

    Args:
        columns: those of the table.
    """

    def __init__(self, folder: Path, columns: Sequence[str] = SCHEMA.names) -> None:
        self.path = str(folder / "results")
        self._columns = list(columns)
        write_deltalake(self.path, SCHEMA.empty_table().select(self._columns))
        self.group: Group = group_with(30)
        assert self.group.alter_config(**{EXACTLY_ONCE_KEY.replace(".", "_"): "true"}) == 0
        self.sink = DeltaSink(self.path)
        self._named: dict[int, Sink] = {}
        self.member = self.join("anna")

    def join(self, member_id: str) -> Member:
        """Add a member."""
        member = Member(self.group, member_id, sink=self.sink.sink)
        member.join()
        self.group.settle()
        member.take_assignments()
        return member

    def acquire(self, max_records: int = 5, member: Member | None = None) -> AcquisitionWrite:
        """Acquire records with a new write."""
        member = member or self.member
        member.sink = DeltaSink(self.path).sink
        response = member.fetch([ORDERS], max_records=max_records).response
        assert response is not None
        assert response.write is not None
        self._named[response.write.version] = member.sink
        return response.write

    def write(
        self,
        write: AcquisitionWrite,
        offsets: Iterable[int],
        partitions: Sequence[ResolvedPartition] = (),
        **part: Any,
    ) -> ResolveWriteRequest:
        """Write a row for each of these records, and return what the sink says.

        Args:
            part: fields of `WritePart` where it is one of several.
        """
        offsets = list(offsets)
        columns: dict[str, list[Any]] = {
            "topic": ["orders"] * len(offsets),
            "partition": [0] * len(offsets),
            "offset": offsets,
            "value": offsets,
        }
        rows = pa.table(columns, SCHEMA).select(self._columns)
        (report,) = self.sink.commit([WritePart(self.unresolved(write), partitions, **part)], rows).reports
        return report

    def unresolved(self, write: AcquisitionWrite) -> UnresolvedWrite:
        """The write as its sink is asked for it."""
        sink = self._named[write.version]
        return UnresolvedWrite(
            app_id=write.app_id,
            version=write.version,
            table_id=sink.table_id,
            address=sink.address,
            sink_version=sink.version,
        )

    def resolve(self, resolution: ResolveWriteRequest) -> None:
        """Report what a sink says, or what somebody claims."""
        answer = self.group.response_to(ApiKey.RESOLVE_WRITE, resolution)
        assert not answer.get("error_code"), answer

    def not_written(self, write: AcquisitionWrite) -> ResolveWriteRequest:
        """The claim that a write is not in the sink."""
        return ResolveWriteRequest(
            app_id=write.app_id, version=write.version, table_id=self.sink.sink.table_id, is_closed=True
        )

    def verify(self, *paths: str) -> SinkVerification:
        """Compare."""
        return verify_sinks(RowsInMemory(self.group.rows), paths or (self.path,))
