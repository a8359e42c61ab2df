"""Followers of published commits: each gets all of them in order, and none can end or delay the loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from sharegroup.logs.partitioner import partition_for
from sharegroup.metrics.processor_metrics import LoopFigures
from sharegroup.processor import assembly
from sharegroup.processor.commit import Commit, CommitPoint
from sharegroup.processor.followers import followers as followers_module
from sharegroup.processor.followers.followers import Followers, GroupActivity
from sharegroup.processor.followers.metrics_feed import MetricsFeed
from sharegroup.processor.processor import Processor
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import AlterGroupConfigRequest
from sharegroup.protocol.messages import request
from sharegroup.state.upkeep import UpkeepProcess
from tests.processor.commits import published
from tests.support.eventually import DEADLINE_S
from tests.support.server_process import free_port
from tests.support.site import REQUEST_PARTITIONS, Site


def started(figures: LoopFigures, **by_name: Callable[[Commit], None]) -> Followers:
    followers = Followers(figures)
    for name, follower in by_name.items():
        followers.add(name, follower)
    followers.start()
    return followers


def commits(count: int) -> list[Commit]:
    return [published(commit_id=number) for number in range(count)]


def ids(seen: list[Commit]) -> list[int | None]:
    return [commit.commit_id for commit in seen]


def test_each_follower_gets_each_commit_once_in_order() -> None:
    first: list[Commit] = []
    second: list[Commit] = []
    followers = started(LoopFigures(), first=first.append, second=second.append)
    for commit in commits(5):
        followers.published(commit)
    followers.stop(DEADLINE_S)
    assert ids(first) == ids(second) == [0, 1, 2, 3, 4]
    assert followers.have_caught_up


def test_a_follower_that_fails_is_logged_counted_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[Commit] = []
    seen: list[Commit] = []

    def fail(commit: Commit) -> None:
        tried.append(commit)
        raise OSError(11, "Resource temporarily unavailable")

    figures = LoopFigures()
    followers = started(figures, failing=fail, other=seen.append)
    for commit in commits(3):
        followers.published(commit)
    followers.stop(DEADLINE_S)
    assert (ids(tried), ids(seen)) == ([0], [0, 1, 2])
    assert figures.failed_followers == 1
    assert not followers.follows("failing")
    assert followers.follows("other")
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().startswith("event=follower_left_out follower=failing")


def test_nobody_waits_for_a_follower_that_takes_long() -> None:
    may_go_on = threading.Event()
    followers = started(LoopFigures(), slow=lambda _: assert_set(may_go_on))
    for commit in commits(3):
        followers.published(commit)
    assert not followers.have_caught_up
    may_go_on.set()
    followers.stop(DEADLINE_S)
    assert followers.have_caught_up


def test_followers_that_are_too_far_behind_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Two of these commits, of two messages each.
    monkeypatch.setattr(followers_module, "MAX_WAITING_ITEMS", 6)
    has_begun, may_go_on = threading.Event(), threading.Event()
    figures = LoopFigures()
    seen: list[Commit] = []

    def hang(_: Commit) -> None:
        has_begun.set()
        assert_set(may_go_on)

    followers = started(figures, before=seen.append, slow=hang, after=seen.append)
    first, *others = commits(4)
    followers.published(first)
    assert_set(has_begun)
    for commit in others:
        followers.published(commit)
    assert figures.failed_followers == 3
    assert not followers.follows("before")
    # The log may be what hangs: the thread of the commits does not write to it.
    assert not caplog.records
    may_go_on.set()
    followers.stop(DEADLINE_S)
    assert [record.getMessage().partition(" reason")[0] for record in caplog.records] == [
        f"event=follower_left_out follower={name}" for name in ("before", "slow", "after")
    ]
    # What was left out gets no later commit, since it lacks one.
    assert ids(seen) == [0]


def assert_set(event: threading.Event) -> None:
    assert event.wait(DEADLINE_S)


def raise_error(*_: object) -> None:
    raise OSError(11, "Resource temporarily unavailable")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name"),
    [(assembly, "log_commit"), (GroupActivity, "published"), (MetricsFeed, "published"), (UpkeepProcess, "start")],
)
def test_no_follower_ends_the_processor(
    new_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    monkeypatch.setattr(owner, name, raise_error)
    monkeypatch.setattr(assembly, "_UPKEEP_AFTER_COMMITS", 1)
    site = new_site()
    site.metrics_port = free_port()
    with site.running() as host:
        group_id, topic = site.new_group(), site.new_topic()
        site.produce(topic, 0, 10)
        with site.consumer(group_id, topic) as consumer:
            site.until(lambda: consumer.poll(timeout=0.1) or site.is_drained(group_id, topic), "all is delivered")
        site.until(lambda: host.processor.figures.failed_followers == 1, "the follower is left out")
        site.admin.alter_group_config(group_id, {"share.delivery.count.limit": "3"}, timeout=DEADLINE_S)
        assert host.processor.figures.failed_followers == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_held", [False, True])
def test_standbys_hear_of_a_leaving_processor_only_when_its_last_commit_is_published(
    new_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    monkeypatch.setattr("sharegroup.processor.processor._LONGEST_STOP_S", 0.1 if is_held else DEADLINE_S)
    notified: list[object] = []
    monkeypatch.setattr(assembly, "append_responses", lambda *arguments: notified.append(arguments))
    is_reached, may_go_on = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == CommitPoint.COMMITTED:
            is_reached.set()
            assert_set(may_go_on)

    site = new_site()
    processor = Processor(site.settings, reached=hold)
    processor.start()
    thread = threading.Thread(target=lambda: processor.run(lambda: False, 50), daemon=True)
    thread.start()
    message = request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, "g", AlterGroupConfigRequest(set={"share.delivery.count.limit": "3"})
    )
    site.append_request(message.encoded(), partition_for("g", REQUEST_PARTITIONS))
    assert_set(is_reached)
    if not is_held:
        may_go_on.set()
    processor.stop()
    assert bool(notified) is not is_held
    may_go_on.set()
    thread.join(DEADLINE_S)
