import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.assembly import Population, assemble
from benchmarks.channel import Channel, ChannelSettings
from benchmarks.loader import Loaders, populations
from benchmarks.open_loop import Offer, OpenLoop
from benchmarks.window import Window, merged
from sharegroup.protocol.api_key import ApiKey
from tests.benchmarks.responder import Responder

pytestmark = pytest.mark.slow

POPULATION = Population(group_ids=("a", "b", "c"), workers_per_group=2, idlers_per_group=1)


@pytest.fixture
def responder(tmp_path: Path) -> Iterator[Responder]:
    with Responder(tmp_path / "log.db") as started:
        yield started


@pytest.fixture
def channel(responder: Responder) -> Iterator[Channel]:
    opened = Channel(responder.channel)
    yield opened
    opened.close()


def offer(duration_s: float = 1, warm_up_s: float = 0.1, window_s: float = 0.5) -> Offer:
    return Offer(
        rate_per_s=200,
        duration_s=duration_s,
        warm_up_s=warm_up_s,
        start_s=time.monotonic(),
        seed=1,
        window_s=window_s,
    )


def test_members_join_and_open_their_sessions(channel: Channel) -> None:
    members = assemble(channel, POPULATION)
    assert len(members.workers) == 6
    assert len(members.idlers) == 3
    assert all(member.has_joined for member in members.all)
    assert all(member.held for member in members.workers)
    assert not any(member.held for member in members.idlers)


def test_every_request_is_completed_once_and_half_are_durable(responder: Responder, channel: Channel) -> None:
    windows: list[Window] = []
    OpenLoop(channel, assemble(channel, POPULATION), offer(duration_s=2), windows.append).run()
    # A warm-up, four windows, and the responses after the end.
    assert [window.index for window in windows] == [-1, 0, 1, 2, 3, 4]
    measured = merged(windows[1:])
    assert measured.offered == measured.completed > 300
    assert sum(measured.durable) / measured.completed == pytest.approx(0.5, abs=0.1)
    assert not measured.errors
    assert not measured.lost
    kinds = Counter(request.api_key for request in responder.requests)
    assert kinds[ApiKey.SHARE_ACKNOWLEDGE] == pytest.approx(kinds.total() / 4, rel=0.25)


def test_a_stall_counts_for_all_that_fall_due_in_it(responder: Responder, channel: Channel) -> None:
    members = assemble(channel, POPULATION)
    windows: list[Window] = []
    loop = OpenLoop(channel, members, offer(duration_s=1.5, warm_up_s=0, window_s=2), windows.append)
    responder.hold()
    release = threading.Timer(0.75, responder.release)
    release.start()
    loop.run()
    late_ms = sorted(merged(windows).latencies_ms)
    # Nine members have one request each on its way; all others wait, and their waiting counts from when they were due.
    assert sum(latency > 300 for latency in late_ms) > 30


def test_members_open_their_sessions_again_after_a_takeover(responder: Responder, channel: Channel) -> None:
    members = assemble(channel, POPULATION)
    responder.announce()
    windows: list[Window] = []
    OpenLoop(channel, members, offer(), windows.append).run()
    reopened = [
        request.member_id
        for request in responder.requests
        if request.api_key == ApiKey.SHARE_FETCH and request.body["share_session_epoch"] == 0
    ]
    assert Counter(reopened) == dict.fromkeys((member.member_id for member in members.all), 2)
    measured = merged(windows[1:])
    assert measured.offered == measured.completed


@pytest.mark.long("a load of seconds")
def test_loader_processes_share_a_load(responder: Responder) -> None:
    parts = populations(4, 2, POPULATION)
    assert [part.group_ids for part in parts] == [("group-0", "group-2"), ("group-1", "group-3")]
    with Loaders(responder.channel, parts) as loaders:
        for seed in (1, 2):
            windows = list(loaders.run(rate_per_s=200, duration_s=1, seed=seed, warm_up_s=0.2, window_s=0.5))
            assert [window.index for window in windows] == [0, 1, 2]
            measured = merged(windows)
            assert measured.offered == measured.completed > 100
    assert {request.group_id for request in responder.requests} == {f"group-{number}" for number in range(4)}


def test_a_loader_that_fails_tells_why(tmp_path: Path) -> None:
    nowhere = ChannelSettings(str(tmp_path / "log.db"), "requests", "responses")
    with pytest.raises(RuntimeError, match="UnknownTopicError"), Loaders(nowhere, [POPULATION]):
        pass
