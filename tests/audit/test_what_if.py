"""what-if: the recorded figures under the recorded limits, and others under others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.replay.what_if import WhatIf, checked_limits, what_if
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.core.record_state import Cause
from sharegroup.errors import ConfigurationError, PointOutsideHistoryError
from sharegroup.logs.local import LocalLog
from sharegroup.state.writer import StateTableWriter
from tests.audit.worked_site import GROUP
from tests.support.site import BROKER, Site


def replayed(site: Site, **limits: str) -> WhatIf:
    checked = checked_limits({name.replace("_", "."): value for name, value in limits.items()})
    return what_if(str(site.state_path), site.log, site.settings.processor, BROKER, checked, GROUP)


@pytest.mark.slow
def test_the_recorded_limits_give_the_recorded_figures(worked: Site) -> None:
    result = replayed(worked, share_delivery_count_limit="3")
    history = group_history(GROUP, worked.rows(GROUP))
    assert result.gaps == []
    assert result.recorded.lock_timeout_count == history.record_count(Cause.LOCK_TIMEOUT) > 0
    assert result.recorded.accepted_count == history.record_count(Cause.ACCEPT)
    assert (result.undecided_count, result.undecided_share) == (0, 0.0)
    assert result.replayed == result.recorded


@pytest.mark.slow
def test_longer_locks_do_not_end(worked: Site) -> None:
    result = replayed(worked, share_record_lock_duration_ms="60000")
    assert result.recorded.lock_timeout_count > 0
    assert result.replayed.lock_timeout_count == 0
    assert result.replayed.redelivery_count <= result.recorded.redelivery_count


@pytest.mark.slow
def test_a_smaller_window_bounds_what_is_in_flight(worked: Site) -> None:
    result = replayed(worked, share_partition_max_record_locks="100", share_delivery_count_limit="2")
    assert result.replayed.in_flight_peak <= 100
    assert result.acknowledged_count >= result.undecided_count
    assert result.replayed.archived_at_limit_count >= result.recorded.archived_at_limit_count


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"share.session.timeout.ms": "1"}, "no limit that a replay can change"),
        ({"share.record.lock.duration.ms": "soon"}, "share.record.lock.duration.ms"),
        ({"share.delivery.count.limit": "0"}, "share.delivery.count.limit"),
    ],
)
def test_a_limit_that_cannot_be_replayed_is_refused(limits: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        checked_limits(limits)


@dataclass(frozen=True)
class Nothing:
    """A log without a request, and a state table without a commit."""

    log: LocalLog
    config: ProcessorConfig

    def replayed(self, path: str) -> WhatIf:
        return what_if(path, self.log, self.config, BROKER, {"share.delivery.count.limit": 3})


@pytest.fixture
def nothing(tmp_path: Path) -> Iterator[Nothing]:
    config = ProcessorConfig(state_table_path=str(tmp_path / "state"), checkpoint_path=str(tmp_path / "checkpoint"))
    with LocalLog(tmp_path / "events.log") as log:
        log.create_topic(config.request_topic_name, config.request_topic_partitions)
        log.create_topic(config.response_topic_name, config.response_topic_partitions)
        yield Nothing(log, config)


def test_a_table_without_a_commit_cannot_answer(nothing: Nothing, tmp_path: Path) -> None:
    StateTableWriter.open(str(tmp_path / "state"), {})
    with pytest.raises(PointOutsideHistoryError, match=r"The state table has no commit yet\."):
        nothing.replayed(str(tmp_path / "state"))


@pytest.mark.slow
def test_a_request_log_that_is_gone_cannot_answer(nothing: Nothing, worked: Site) -> None:
    with pytest.raises(PointOutsideHistoryError, match=r"No commit can be replayed: commits 0 to \d+: the announce"):
        nothing.replayed(str(worked.state_path))
