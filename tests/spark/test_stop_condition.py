"""The end of a worker, against the real actors. No Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.group_member import GroupMember
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import RequestTimedOutError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark import stop_condition
from sharegroup.spark.stop_condition import StopOnRequest, StopWhenDrained
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import eventually

Join = Callable[[str], GroupMember]
FETCH = FetchSettings(max_records=10, batch_size=10, max_wait_ms=200)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "events.log") as log:
        yield log


@pytest.fixture
def processor(log: LocalLog) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(log) as processor:
        yield processor


@pytest.fixture
def join(log: LocalLog, processor: ProcessorPeer) -> Iterator[Join]:
    """Makes members of a group that begins with the first of 50 records."""
    AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
    log.create_topic("orders", 1, {})
    log.append("orders", 0, [NewRecord(None, b"v")] * 50)
    members: list[GroupMember] = []

    def joined(topic: str) -> GroupMember:
        members.append(GroupMember(log, MemberSettings(group_id="g", fetch=FETCH)))
        members[-1].subscribe([topic])
        return members[-1]

    yield joined
    for member in members:
        member.close(20_000)


def work(member: GroupMember, end: StopWhenDrained) -> int:
    """Accept everything until the end; the number of records."""
    count = 0
    while not end.is_reached(member, is_busy=False):
        if taken := member.next_acquisition(50):
            count += sum(held.last_offset - held.first_offset + 1 for held in taken.ranges)
            # A handler takes its time; meanwhile fetches find nothing.
            assert not end.is_reached(member, is_busy=True)
            member.acknowledge([held.acknowledgement(AcknowledgeType.ACCEPT) for held in taken.ranges])
    return count


def test_a_worker_for_ever_ends_when_it_is_asked(join: Join) -> None:
    stop = threading.Event()
    end = StopOnRequest(stop)
    member = join("orders")
    assert not end.is_reached(member, is_busy=False)
    stop.set()
    assert end.is_reached(member, is_busy=True)


def test_a_worker_ends_when_every_record_was_its(join: Join) -> None:
    assert work(join("orders"), StopWhenDrained(threading.Event(), 60)) == 50
    assert work(join("orders"), StopWhenDrained(threading.Event(), 60)) == 0


def test_nothing_ends_while_records_are_at_hand_however_many_fetches_find_nothing(join: Join) -> None:
    end = StopWhenDrained(threading.Event(), 60)
    member = join("orders")
    record_count = 0

    def has_all() -> bool:
        nonlocal record_count
        if acquisition := member.next_acquisition(100):
            record_count += sum(held.last_offset - held.first_offset + 1 for held in acquisition.ranges)
        return record_count == 50

    eventually(has_all, "50 records")
    eventually(lambda: member.standing().empty_fetch_count >= 3, "fetches find nothing")
    assert not end.is_reached(member, is_busy=True)
    assert not end.is_reached(member, is_busy=False), "what was found before is of no account"


def test_a_worker_of_a_topic_that_does_not_exist_ends(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_condition, "_UNASSIGNED_S", 0.5)
    assert work(join("nowhere"), StopWhenDrained(threading.Event(), 60)) == 0


def test_a_processor_that_does_not_respond_is_an_error(join: Join, processor: ProcessorPeer) -> None:
    member = join("orders")
    eventually(lambda: member.standing().is_stable, "the member is in the group")
    end = StopWhenDrained(threading.Event(), 0.5)
    with processor.stalled(), pytest.raises(RequestTimedOutError, match=r"No processor responded within 0\.5 s"):
        eventually(lambda: end.is_reached(member, is_busy=True), "the end")


def test_a_processor_that_does_not_appear_is_an_error() -> None:
    end = StopWhenDrained(threading.Event(), 0.2)
    with pytest.raises(RequestTimedOutError):
        eventually(lambda: end.wait(0.05), "the end")
