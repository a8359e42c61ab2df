"""The state table of a standby: followed commit by commit, it equals the fold of all rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest

from sharegroup.errors import FencedProcessorError, StateTableError
from sharegroup.processor.standby.followed_table import FollowedTable
from sharegroup.processor.standby.lock import ProcessorLocks, hold_lock
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.simulation.schedule import shown
from tests.support.site import Site

MakeSite = Callable[..., Site]

_HOLD = """
import sys, time
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.processor.standby.lock import hold_lock
lock = hold_lock(ProcessorConfig(log_path=sys.argv[1], state_table_path=sys.argv[2], checkpoint_path="c"), 5)
print(5, flush=True)
time.sleep(600)
"""


def work(site: Site, group_id: str, topic: str, count: int) -> None:
    """Let a member join, take records, accept them and leave."""
    consumer = site.consumer(group_id, topic)
    site.poll(consumer, count)
    consumer.commit_sync()
    consumer.close()


def test_the_followed_state_is_the_fold_of_all_rows(new_site: MakeSite) -> None:
    site = new_site()
    with site.running():
        table = FollowedTable(site.table_path, fold_count=2)
        table.follow()
        for _ in range(3):
            topic, group_id = site.new_topic(2, record_count=3), site.new_group()
            work(site, group_id, topic, 6)
            table.follow()
    present = table.present_state()
    expected = fold(StateTableReader(site.table_path).recovery_rows())
    assert len(expected.groups) == 3
    assert shown(present.folded) == shown(present.fold_again()) == shown(expected)
    assert present.fold_again() is not present.folded
    assert present.last_marker == site.reader.last_marker()
    assert table.followed_epoch == 1


def test_a_table_that_was_pruned_meanwhile_is_folded_again(new_site: MakeSite) -> None:
    site = new_site()
    with site.running():
        site.new_group()
        table = FollowedTable(site.table_path)
        table.follow()
        topic, group_id = site.new_topic(1, record_count=3), site.new_group()
        work(site, group_id, topic, 3)
    table._commit_id -= 1_000
    table._version -= 1
    table.follow()
    assert shown(table.present_state().folded) == shown(fold(site.reader.recovery_rows()))


def test_no_table_is_a_table_that_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(StateTableError, match="There is no state table"):
        FollowedTable(str(tmp_path / "none")).follow()


def test_one_of_two_takeovers_from_one_processor_wins(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    first = StateTableWriter.open(path, {}, after_epoch=0)
    assert StateTableWriter.open(path, {}, after_epoch=first.leader_epoch).leader_epoch == 2
    with pytest.raises(FencedProcessorError, match="leader epoch 2 has taken over"):
        StateTableWriter.open(path, {}, after_epoch=first.leader_epoch)
    assert StateTableReader(path).leader_epoch() == 2


def test_the_lock_of_a_processor_ends_with_it_and_a_later_one_removes_it(new_site: MakeSite) -> None:
    site = new_site()
    with site.running():
        config = site.settings.processor
        locks = ProcessorLocks(config)
        assert locks.ended_epochs() == []
    # It has left: there is nothing to find out.
    assert locks.ended_epochs() == []
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, *map(str, (site.log_path, site.table_path))], stdout=PIPE)
    assert holder.stdout is not None
    assert holder.stdout.read(1) == b"5"
    assert locks.ended_epochs() == []
    holder.kill()
    holder.wait()
    assert locks.ended_epochs() == [5]
    later = hold_lock(config, 6)
    assert later is not None
    assert locks.ended_epochs() == []
    later.close()
