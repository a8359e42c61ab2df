"""Writes that fetches hand out are looked up until they are reported, whatever goes wrong meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sharegroup.client.admin import AdminClient
from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition
from sharegroup.client.processor_groups import ProcessorGroups
from sharegroup.client.settings import ChannelTopics, FetchSettings, MemberSettings
from sharegroup.client.sink_commits import WritePart
from sharegroup.client.write_decisions import open_writes
from sharegroup.client.write_resolver import WriteResolver
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from tests.client.processor_peer import BROKER, ProcessorPeer
from tests.support.eventually import DEADLINE_S, WAIT_MS, eventually

ROWS = pa.table({"value": [1]})
FETCH = FetchSettings(max_records=10, batch_size=10)


class FailingSink:
    """A sink of which the first lookups fail, each with another kind of error."""

    def __init__(self, sink: DeltaSink, failures: list[Exception]) -> None:
        self._sink = sink
        self.failures = failures

    @property
    def sink(self) -> Sink:
        return self._sink.sink

    def resolve(self, write: UnresolvedWrite) -> ResolveWriteRequest:
        if self.failures:
            raise self.failures.pop()
        return self._sink.resolve(write)


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[DeltaSink]:
    write_deltalake(str(tmp_path / "sink"), ROWS)
    with DeltaSink(str(tmp_path / "sink")) as sink:
        yield sink


@pytest.fixture
def held(log: LocalLog, processor: ProcessorPeer, sink: DeltaSink) -> Acquisition:
    """Ten records of a member that is gone."""
    log.create_topic("t", 1, {})
    log.append("t", 0, [NewRecord(None, b"v")] * 10)
    AdminClient(log).alter_group_config(
        "g", {"share.exactly.once.enable": "true", "share.auto.offset.reset": "earliest"}
    )
    gone = GroupMember(log, MemberSettings(group_id="g", fetch=FETCH, sink=sink.sink))
    gone.subscribe(["t"])
    acquired = gone.next_acquisition(WAIT_MS)
    assert acquired is not None
    gone.close(WAIT_MS)
    return acquired


def states(log: LocalLog) -> list[tuple[str, int]]:
    group = ProcessorGroups(log, BROKER, "test", ChannelTopics(), DEADLINE_S).folded("g")
    runs = [run for each in group.partitions.values() for run in each.share_partition.runs]
    return [(run.state.name, run.size) for run in runs] + [("open", len(open_writes(group)))]


@pytest.mark.parametrize("is_written", [True, False])
def test_no_failure_ends_the_lookups(
    log: LocalLog, sink: DeltaSink, held: Acquisition, caplog: pytest.LogCaptureFixture, is_written: bool
) -> None:
    assert held.write is not None
    if is_written:
        assert sink.commit([WritePart(held.write.unresolved)], ROWS).is_written
    assert states(log) == [("RESOLVING", 10), ("open", 1)]
    failing = FailingSink(sink, [ValueError("a surprise"), OSError("the store is away")])
    member = GroupMember(log, MemberSettings(group_id="g", fetch=FETCH, sink=sink.sink))
    try:
        with caplog.at_level(logging.INFO):
            resolver = WriteResolver(member, failing)
            member.subscribe(["t"])
            if is_written:
                eventually(lambda: states(log) == [("open", 0)], "the write is accepted")
            else:
                again = member.next_acquisition(WAIT_MS)
                assert again is not None
                assert [each.delivery_count for each in again.ranges] == [2]
                assert again.write is not None
                assert again.write.version > held.write.version
            assert resolver.drain(DEADLINE_S)
            assert resolver.close()
    finally:
        member.close(WAIT_MS)
    events = [record.getMessage() for record in caplog.records if "event=write_" in record.getMessage()]
    assert [event.split()[0] for event in events] == ["event=write_not_resolved", "event=write_resolved"]
    assert 'reason="the store is away"' in events[0]


def test_a_member_that_fetches_nothing_looks_up_as_well(log: LocalLog, sink: DeltaSink, held: Acquisition) -> None:
    member = GroupMember(log, MemberSettings(group_id="g", fetch=FETCH, sink=sink.sink))
    AdminClient(log).pause_group("g")
    try:
        resolver = WriteResolver(member, sink)
        member.subscribe(["t"])
        eventually(lambda: states(log) == [("AVAILABLE", 10), ("open", 0)], "the write is looked up")
        assert resolver.close()
    finally:
        member.close(WAIT_MS)
