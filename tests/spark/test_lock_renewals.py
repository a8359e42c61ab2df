"""Renewals of the locks of a handler's records: by themselves, and of a real member and processor. No Spark session."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition, HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement, PendingAcknowledgements
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRecordStateError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.log_clock import monotonic_ms
from sharegroup.logs.port import NewRecord
from sharegroup.spark.lock_renewals import RENEWED_DELAY_MS, LockRenewals
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import eventually

ACCEPT, RELEASE, RENEW, UNREAD = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.RENEW,
    AcknowledgeType.UNREAD,
)
TIMEOUT_MS = 60_000
RENEW_MAX_MS = 100_000
LOCK_MS = 30_000
NOW_MS = 1_000_000
HALF_MS = LOCK_MS // 2


def held(first_offset: int, last_offset: int, topic: str = "orders") -> HeldRange:
    return HeldRange(f"{topic}-id", topic, 0, first_offset, last_offset, 1)


def acquired(*ranges: HeldRange) -> Acquisition:
    """An acquisition of this moment."""
    return Acquisition(ranges, NOW_MS + LOCK_MS, LOCK_MS)


class Sent(PendingAcknowledgements):
    """The acknowledgements that the next request would carry."""

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        for acknowledgement in acknowledgements:
            self.put(acknowledgement)

    def take_all(self) -> list[tuple[int, int, AcknowledgeType]]:
        return [(ack.first_offset, ack.last_offset, ack.acknowledge_type) for ack in self.take(100_000)]


@pytest.mark.parametrize(
    ("has_failed", "renews", "kind"),
    [(False, False, RELEASE), (True, False, UNREAD), (True, True, RELEASE)],
    ids=["its only call takes too long", "calls after a failure take too long", "renewed after a failure"],
)
def test_records_that_are_given_up_count_unless_the_handler_failed_with_them(
    has_failed: bool, renews: bool, kind: AcknowledgeType
) -> None:
    renewals = LockRenewals(RENEW_MAX_MS, Sent().acknowledge)
    active = renewals.begin(acquired(held(0, 9)), "tag", NOW_MS)
    if has_failed:
        active.note_failure()
    if renews:
        assert renewals.end(active, [held(0, 9).acknowledgement(RENEW)], NOW_MS)
    (overdue,) = renewals.take_overdue(NOW_MS + RENEW_MAX_MS)
    assert overdue.overdue_type is kind


def test_locks_are_renewed_when_half_of_their_time_is_over() -> None:
    sent = Sent()
    renewals = LockRenewals(RENEW_MAX_MS, sent.acknowledge)
    renewals.begin(acquired(held(0, 9)), "tag", NOW_MS)
    renewals.renew(NOW_MS + HALF_MS - 1)
    assert sent.take_all() == []
    renewals.renew(NOW_MS + HALF_MS)
    assert sent.take_all() == [(0, 9, RENEW)]
    renewals.renew(NOW_MS + HALF_MS + 1)
    assert sent.take_all() == []


def test_records_that_the_handler_renewed_stay_locked_until_it_receives_them_again() -> None:
    sent = Sent()
    renewals = LockRenewals(RENEW_MAX_MS, sent.acknowledge)
    active = renewals.begin(acquired(held(0, 9)), "tag", NOW_MS)
    assert renewals.end(active, [held(0, 3).acknowledgement(ACCEPT), held(4, 9).acknowledgement(RENEW)], NOW_MS)
    assert sent.take_all() == [(0, 3, ACCEPT), (4, 9, RENEW)]
    assert renewals.has_waiting
    # 1. No thread is free.
    for renewal_count in range(1, 4):
        renewals.renew(NOW_MS + renewal_count * HALF_MS)
        assert sent.take_all() == [(4, 9, RENEW)]
    # 2. A thread is free.
    assert renewals.resume(NOW_MS + RENEWED_DELAY_MS - 1) is None
    resumed = renewals.resume(NOW_MS + RENEWED_DELAY_MS)
    assert resumed is not None
    assert resumed.ranges == [held(4, 9)]
    assert renewals.resume(NOW_MS + RENEWED_DELAY_MS) is None
    assert not renewals.has_waiting
    renewals.renew(NOW_MS + 4 * HALF_MS)
    assert sent.take_all() == [(4, 9, RENEW)]
    assert renewals.end(resumed, [held(4, 9).acknowledgement(ACCEPT)], NOW_MS + 4 * HALF_MS)
    renewals.renew(NOW_MS + 5 * HALF_MS)
    assert sent.take_all() == [(4, 9, ACCEPT)]


def test_the_handlers_time_includes_the_time_that_its_records_wait_for_it() -> None:
    sent = Sent()
    renewals = LockRenewals(RENEW_MAX_MS, sent.acknowledge)
    active = renewals.begin(acquired(held(0, 9)), "tag", NOW_MS)
    renewals.end(active, [held(0, 9).acknowledgement(RENEW)], NOW_MS + RENEW_MAX_MS - 1)
    assert renewals.take_overdue(NOW_MS + RENEW_MAX_MS - 1) == []
    (overdue,) = renewals.take_overdue(NOW_MS + RENEW_MAX_MS)
    assert overdue.is_waiting
    assert overdue.ranges == [held(0, 9)]
    sent.take_all()
    renewals.renew(NOW_MS + 2 * RENEW_MAX_MS)
    assert sent.take_all() == []
    assert renewals.resume(NOW_MS + 2 * RENEW_MAX_MS) is None


def test_records_that_were_given_up_are_not_acknowledged() -> None:
    sent = Sent()
    renewals = LockRenewals(RENEW_MAX_MS, sent.acknowledge)
    active = renewals.begin(acquired(held(0, 9)), "tag", NOW_MS)
    assert renewals.take_overdue(NOW_MS + RENEW_MAX_MS) == [active]
    assert not renewals.end(active, [held(0, 9).acknowledgement(ACCEPT)], NOW_MS + RENEW_MAX_MS)
    assert sent.take_all() == []


class WatchedLock:
    """A lock that says once somebody had to wait for it."""

    def __init__(self) -> None:
        self.was_awaited = False
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.was_awaited = True
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_renewal_does_not_replace_the_final_acknowledgement_of_a_handler_that_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class EndsMeanwhile(Sent):
        """The handler ends when its renewal is about to be sent."""

        def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
            acks = list(acknowledgements)
            if acks[0].acknowledge_type is RENEW:
                handler.start()
                # One that does not have to wait is over.
                eventually(lambda: lock.was_awaited or not handler.is_alive(), "the handler waits")
            super().acknowledge(acks)

    sent = EndsMeanwhile()
    renewals = LockRenewals(RENEW_MAX_MS, sent.acknowledge)
    lock = WatchedLock()
    monkeypatch.setattr(renewals, "_lock", lock)
    active = renewals.begin(acquired(held(0, 9)), "tag", NOW_MS)
    accepted = [held(0, 9).acknowledgement(ACCEPT)]
    handler = threading.Thread(target=renewals.end, args=(active, accepted, NOW_MS + HALF_MS))
    renewals.renew(NOW_MS + HALF_MS)
    handler.join()
    assert sent.take_all() == [(0, 9, ACCEPT)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    """A log with two topics of one record each."""
    with LocalLog(tmp_path / "events.log") as log:
        for topic in ("kept", "deleted"):
            log.create_topic(topic, 1, {})
            log.append(topic, 0, [NewRecord(None, b"value")])
        yield log


@pytest.fixture
def processor(log: LocalLog) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(log) as processor:
        AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
        yield processor


@pytest.fixture
def member(log: LocalLog, processor: ProcessorPeer) -> Iterator[GroupMember]:
    """A member that subscribes to both topics."""
    member = GroupMember(log, MemberSettings(group_id="g", fetch=FetchSettings(max_records=10, batch_size=10)))
    member.subscribe(["kept", "deleted"])
    yield member
    member.close(TIMEOUT_MS)


def both_acquired(member: GroupMember) -> Acquisition:
    """The records of both topics, as if one fetch had acquired them."""
    both: list[Acquisition] = []
    while sum(acquisition.record_count for acquisition in both) < 2:
        acquisition = member.next_acquisition(TIMEOUT_MS)
        assert acquisition is not None
        both.append(acquisition)
    return replace(both[0], ranges=tuple(held for acquisition in both for held in acquisition.ranges))


def responses(member: GroupMember) -> list[Acknowledged]:
    results = member.flush(TIMEOUT_MS)
    assert not member.unconfirmed_partitions()
    return results


def topics(results: Iterable[Acknowledged], *, are_refused: bool) -> list[str]:
    return sorted(result.topic for result in results if (result.error is not None) == are_refused)


@pytest.mark.long("locks end by time, and are renewed before")
def test_a_refused_renewal_ends_the_renewals_of_its_own_records_only(log: LocalLog, member: GroupMember) -> None:
    renewals = LockRenewals(RENEW_MAX_MS, member.acknowledge)
    acquisition = both_acquired(member)
    active = renewals.begin(acquisition, "tag", monotonic_ms())
    log.delete_topic("deleted")
    renewal_times = itertools.count(acquisition.lock_deadline_ms, acquisition.lock_timeout_ms)

    def renew() -> list[Acknowledged]:
        renewals.renew(next(renewal_times))
        return responses(member)

    # 1. The processor refuses the deleted topic once it has noticed.
    results = eventually(lambda: refused if topics(refused := renew(), are_refused=True) else None, "a refusal")
    assert topics(results, are_refused=False) == ["kept"]
    renewals.settle(results)
    assert topics(results, are_refused=True) == ["deleted"]
    assert [held.topic for held in active.ranges] == ["kept"]
    # 2. The others are renewed.
    assert [(result.topic, result.error) for result in renew()] == [("kept", None)]


def test_renewed_records_whose_renewal_was_refused_do_not_come_again(log: LocalLog, member: GroupMember) -> None:
    renewals = LockRenewals(RENEW_MAX_MS, member.acknowledge)
    AdminClient(log).alter_group_config("g", {"share.renew.acknowledge.enable": "false"})
    active = renewals.begin(both_acquired(member), "tag", monotonic_ms())
    renewed = [held.acknowledgement(RENEW) for held in active.ranges]
    assert renewals.end(active, renewed, monotonic_ms())
    assert renewals.has_waiting
    renewals.settle(responses(member))
    assert not renewals.has_waiting


def test_a_lost_acquisition_does_not_end_the_renewals_of_others_of_its_partition(
    log: LocalLog, processor: ProcessorPeer
) -> None:
    log.append("kept", 0, [NewRecord(None, b"value")])
    fetch = FetchSettings(max_records=1, batch_size=1, acquire_mode=AcquireMode.RECORD_LIMIT)
    member = GroupMember(log, MemberSettings(group_id="g", fetch=fetch, sends_refused_apart=True))
    member.subscribe(["kept"])
    renewals = LockRenewals(RENEW_MAX_MS, member.acknowledge)
    acquisitions = [acquisition for _ in range(2) if (acquisition := member.next_acquisition(TIMEOUT_MS))]
    active, lost = (renewals.begin(acquisition, "tag", monotonic_ms()) for acquisition in acquisitions)
    member.acknowledge(lost.acknowledgements(ACCEPT))
    responses(member)
    renewals.renew(acquisitions[1].lock_deadline_ms)
    renewals.settle(responses(member))
    assert list(lost.ranges) == []
    assert list(active.ranges) == list(acquisitions[0].ranges)
    assert renewals.end(active, active.acknowledgements(ACCEPT), monotonic_ms())
    assert [result.error for result in responses(member)] == [None]
    member.close(TIMEOUT_MS)


def test_of_a_run_of_renewals_the_refusal_concerns_all_records() -> None:
    sent = Sent()
    renewals = LockRenewals(RENEW_MAX_MS, sent.acknowledge)
    first = renewals.begin(acquired(held(0, 9)), "tag-1", NOW_MS)
    second = renewals.begin(acquired(held(10, 19), held(30, 39)), "tag-2", NOW_MS)
    renewals.renew(NOW_MS + HALF_MS)
    run, other = sent.take(100_000)
    assert (run.first_offset, run.last_offset) == (0, 19)
    renewals.settle(
        [Acknowledged((run,), InvalidRecordStateError("The lock has ended.")), Acknowledged((other,), None)]
    )
    assert (list(first.ranges), list(second.ranges)) == ([], [held(30, 39)])
