"""A group whose members write into sinks while faults happen, and the ledger that it is held to.

The ledger is outside: what was produced, the rows of the tables, and the changes of the records in the state table.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from sharegroup.audit.history.row_source import TableRows
from sharegroup.audit.sinks.verify_sinks import verify_sinks
from sharegroup.audit.verification.verify import verify
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.state.fold import FoldedGroup, fold
from tests.crash.deployment import Deployment
from tests.crash.pausing import let_pass
from tests.crash.sink_members import CONSUMER, MERGE, SinkMember, Specification, is_rejected
from tests.crash.strangers import STRANGER, disturb
from tests.support.eventually import SLOWNESS
from tests.support.site import BROKER

LOCK_S = 2.0 * SLOWNESS
"""Long enough for a member that lives to renew it."""
_PARTITIONS = 2
_LONGEST_DELAY_S = 0.5
"""From new results of a member to its fault; a moment in which it reads, computes, writes or reports."""
_WRITE, _FENCE = "sharegroup.write", "is_fence"
"""Of the metadata of commits."""
_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("size", pa.int32()),
        ("delivery_count", pa.int32()),
        ("writer", pa.string()),
    ]
)

OffsetKey = tuple[int, int]
"""Partition and offset of a record."""


class SinkRun:
    """A group, its members, their tables, and the ledger.

    Args:
        choices: the moments of the faults.
        config: of the group.
    """

    def __init__(self, deployment: Deployment, choices: random.Random, **config: str) -> None:
        self.deployment = deployment
        self.choices = choices
        self.faults: Counter[str] = Counter()
        self.members: list[SinkMember] = []
        self.tables: list[str] = []
        self._site = deployment.site
        self._produced: Counter[OffsetKey] = Counter()
        self.topic = self._site.new_topic(_PARTITIONS)
        self.group_id = self._site.new_group(
            share_exactly_once_enable="true",
            share_record_lock_duration_ms=str(round(LOCK_S * 1_000)),
            share_session_timeout_ms="6000",
            **{"share_delivery_count_limit": "10", **config},
        )

    # Members and records.

    def new_table(self) -> str:
        """Create one more sink."""
        table = str(self.deployment.folder / self._site.new_name("results"))
        write_deltalake(table, _SCHEMA.empty_table())
        self.tables.append(table)
        return table

    def add(self, kind: str, mode: str, table: str = "") -> SinkMember:
        """Start one more member, with a table of its own unless one is named."""
        specification = Specification(
            folder=str(self.deployment.folder),
            channel=self._site.settings.channel_properties,
            group_id=self.group_id,
            topic=self.topic,
            client_id=self._site.new_name(kind),
            sink=table or self.new_table(),
            kind=kind,
            mode=mode,
        )
        self.members.append(SinkMember(self._site, specification))
        return self.members[-1]

    def produce(self, count: int) -> None:
        """Append so many records to each partition."""
        for partition, offsets in self._site.log.offsets(self.topic).items():
            self._produced.update((partition, offsets.end_offset + number) for number in range(count))
            self._site.produce(self.topic, partition, count)

    def await_work(self, member: SinkMember, count: int) -> None:
        """Produce so many records in each partition, again when others have taken them, until a member writes some."""
        before = self._write_count(member)

        def writes() -> bool:
            self._check_running()
            if self._write_count(member) > before:
                return True
            if self._is_finished(with_writes=False):
                self.produce(count)
            return False

        self.produce(count)
        self.deployment.until(writes, f"{member.specification.client_id} writes", pause_s=0.2)

    def await_work_of_all(self, count: int) -> None:
        """Produce, so many records at once, until each member has written some."""
        before = [self._row_count(member) for member in self.members]
        for member, row_count in zip(self.members, before, strict=True):
            while self._row_count(member) <= row_count:
                self.await_work(member, count)

    # Faults.

    def lose(self, member: SinkMember, kind: str) -> None:
        """Let something happen to a member at a moment of its work.

        Args:
            kind: what is counted: `kill`, `kill of the program`, `kill and lost checkpoint`, or `pause`.
        """
        if kind == "pause":
            with self.standing_still(member):
                if self._shares_sink(member):
                    # Others look its writes up once its locks have ended, and it wakes up late.
                    self.await_end_of_records()
                else:
                    let_pass(1.5 * LOCK_S)
            return
        self._await_moment(member, kind)
        member.kill(spares_jvm=kind == "kill of the program")
        if kind == "kill and lost checkpoint":
            member.lose_checkpoint()
        member.start()

    @contextmanager
    def standing_still(self, member: SinkMember) -> Iterator[None]:
        """Pause a member at a moment of its work, for the time of the block."""
        self._await_moment(member, "pause")
        member.pause()
        try:
            yield
        finally:
            member.resume()

    def lose_processor(self) -> None:
        """Kill the processor, and start another."""
        self.faults["processor: kill"] += 1
        self.deployment.crash("a processor with open writes")

    def disturb(self, number: int) -> None:
        """Let a stranger change each table that consumers write to; beside Spark applications one is at work anyway."""
        for table in {m.specification.sink for m in self.members if m.specification.kind == CONSUMER}:
            disturb(table, number)

    # The end.

    def await_end_of_writes(self) -> None:
        """Wait until all records are finished, and all writes decided."""
        is_finished = partial(self._is_finished, with_writes=True)
        self.deployment.until(is_finished, "nothing is open", pause_s=0.2)

    def await_end_of_records(self) -> None:
        """Wait until all records are finished."""
        is_drained = partial(self._is_finished, with_writes=False)
        self.deployment.until(is_drained, "all records are finished", pause_s=0.2)

    def finish(self) -> None:
        """Wait until nothing is open; then end the members, and hold everything to the ledger."""
        self.await_end_of_writes()
        self._check_running()
        for member in self.members:
            member.end()
        self._check()

    def close(self) -> None:
        """End all members."""
        for member in self.members:
            member.end()

    @property
    def figures(self) -> str:
        """The faults and the records so far."""
        faults = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.faults.items()))
        return f"{faults}; {len(self._produced)} records, {len(self.written())} written"

    def written(self) -> Counter[OffsetKey]:
        """Return how often each record is in the tables."""
        written: Counter[OffsetKey] = Counter()
        for table in self.tables:
            rows = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset"])
            written.update(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
        return Counter({key: count for key, count in written.items() if key[0] != STRANGER})

    def _check(self) -> None:
        written, ended = self.written(), self._ended()
        print(self.figures)
        assert _few(key for key, count in written.items() if count > 1) == [], "twice in the sinks"
        assert set(self._produced.values()) == {1}
        accepted = ended.pop(Cause.ACCEPT, set())
        assert _few(accepted - set(written)) == [], "accepted, and not in a sink"
        assert _few(set(written) - accepted) == [], "in a sink, and not accepted"
        for cause, keys in ended.items():
            assert _few(key for key in keys if not is_rejected(key[1])) == [], f"ended by {cause}"
        assert _few(set(self._produced) - accepted.union(*ended.values())) == [], "neither accepted nor rejected"
        assert all(accepted.isdisjoint(keys) for keys in ended.values())
        for member in self.members:
            if member.specification.mode == MERGE:
                assert updated_count(member.specification.sink) == 0, "merged twice"
        # The audit of production has to agree.
        rows = self._site.rows()
        assert verify(rows, BROKER).findings == []
        reconciled = verify_sinks(TableRows(self._site.table_path), self.tables, self.group_id)
        assert reconciled.findings == []
        assert (reconciled.open_count, reconciled.unread_rows, reconciled.other_sinks) == (0, [], [])

    def _ended(self) -> dict[Cause, set[OffsetKey]]:
        """Return the records that were accepted, or ended otherwise, by cause."""
        ended: dict[Cause, set[OffsetKey]] = {}
        for row in self._site.rows(self.group_id):
            for change in row.transitions:
                if change.to_state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED):
                    keys = ended.setdefault(change.cause, set())
                    keys.update((row.partition, o) for o in range(change.first_offset, change.last_offset + 1))
        return ended

    def _group(self) -> FoldedGroup:
        rows = self._site.reader.recovery_rows(self.group_id)
        return fold(rows).groups.get(self.group_id, FoldedGroup(self.group_id))

    def _is_finished(self, *, with_writes: bool) -> bool:
        partitions = [each for each in self._group().partitions.values() if each.topic == self.topic]
        starts = {each.partition: each.share_partition.start_offset for each in partitions}
        ends = {partition: offsets.end_offset for partition, offsets in self._site.log.offsets(self.topic).items()}
        is_open = with_writes and any(each.share_partition.open_writes for each in partitions)
        return starts == ends and not is_open

    def _await_moment(self, member: SinkMember, kind: str) -> None:
        let_pass(self.choices.random() * _LONGEST_DELAY_S)
        self.faults[f"{member.specification.kind}: {kind}"] += 1

    def _shares_sink(self, member: SinkMember) -> bool:
        return any(m is not member and m.specification.sink == member.specification.sink for m in self.members)

    def _write_count(self, member: SinkMember) -> int:
        """Return how many commits with results a table has."""
        infos = _commit_infos(member.specification.sink)
        return sum(_WRITE in (text := str(info.get("userMetadata"))) and _FENCE not in text for info in infos)

    def _row_count(self, member: SinkMember) -> int:
        """Return how many rows a table has of a member."""
        writers = DeltaTable(member.specification.sink).to_pyarrow_table(columns=["writer"])["writer"]
        return sum(writer == member.specification.client_id for writer in writers.to_pylist())

    def _check_running(self) -> None:
        for member in self.members:
            member.check_running()


def updated_count(table: str) -> int:
    """Return how many rows merges of members have updated: each record has a key of its own."""
    merges = [i for i in _commit_infos(table) if i["operation"] == "MERGE" and _WRITE in i.get("userMetadata", "")]
    assert merges
    return sum(int(info["operationMetrics"]["numTargetRowsUpdated"]) for info in merges)


def _few(keys: Iterable[OffsetKey]) -> list[OffsetKey]:
    return sorted(keys)[:20]


def _commit_infos(table: str) -> Iterator[dict[str, Any]]:
    """Yield what the log says of its commits."""
    for path in Path(table, "_delta_log").glob("*.json"):
        for line in path.read_text().splitlines():
            if line.startswith('{"commitInfo"'):
                yield json.loads(line)["commitInfo"]
