"""Records that are read ahead of the polls, when a lookup in the log does not show their topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import offset_of
from sharegroup.client.read_ahead import ReadAhead
from sharegroup.client.record_reader import RecordReader
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import ShareGroupError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import TopicIdentity
from tests.support.eventually import eventually

SETTINGS = MemberSettings(group_id="g", fetch=FetchSettings(max_records=10, batch_size=10, max_poll_records=10))


class LaggingLog(LocalLog):
    """A local log whose first lookup does not see any topic, as at a broker whose metadata lags."""

    blind_lookups = 1

    def identify(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicIdentity | ShareGroupError]:
        if not self.blind_lookups:
            return super().identify(names, timeout_ms)
        self.blind_lookups -= 1
        return {name: UnknownTopicError(f"There is no topic {name}.", "") for name in names}


@pytest.fixture
def lagging(log_path: Path, log: LocalLog) -> Iterator[LaggingLog]:
    with LaggingLog(log_path) as lagging:
        yield lagging


def test_records_of_a_topic_that_one_lookup_misses_are_returned_and_come_again(
    log: LocalLog, lagging: LaggingLog, produce: Callable[[str, int], None]
) -> None:
    # Locks, and the half of them after which waiting records are returned, that no wait of this test outlasts.
    AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": "60000"})
    member = GroupMember(log, SETTINGS)
    counts: dict[int, int] = {}

    with closing(ReadAhead(member, RecordReader(lagging, 1_000_000))) as read_ahead:
        member.subscribe(["cl-1"])

        def are_all_read() -> bool:
            for read in read_ahead.poll((), 1):
                counts.update(dict.fromkeys(map(offset_of, read.records), read.held.delivery_count))
                member.acknowledge([read.held.acknowledgement(AcknowledgeType.ACCEPT)])
            return len(counts) == 120

        eventually(are_all_read, "all records are read")
        member.close(1_000)
    assert lagging.blind_lookups == 0
    assert counts == dict.fromkeys(range(120), 1)
