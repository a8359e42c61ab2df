"""Groups that fail again while they are rebuilt: they end up quarantined, and the processor goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sharegroup.actor.leader import Leader
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import LogRecord
from sharegroup.processor.clocks import PartitionClocks
from sharegroup.processor.commit import GroupOutput
from sharegroup.processor.groups import Groups, TakenCut
from sharegroup.processor.output import ResponseRecords
from sharegroup.processor.takeover.beginning import Beginning
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_description import DescribeShareGroupOffsetsRequest
from sharegroup.protocol.group_messages import MemberAlive, ResumeShareGroupRequest
from sharegroup.protocol.messages import Message, request
from sharegroup.state.fold import FoldedState

MESSAGES: dict[str, tuple[ApiKey, Message]] = {
    "describe": (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsRequest()),
    "message": (ApiKey.MEMBER_ALIVE, MemberAlive()),
    "resume": (ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest()),
}


class Partition:
    """A request partition with one group, whose rebuild reads no rows."""

    def __init__(self, folder: Path) -> None:
        config = ProcessorConfig(state_table_path="state", checkpoint_path="checkpoint")
        response_records = ResponseRecords(LocalLog(folder / "log.db"), config)
        self.groups = Groups(Beginning(FoldedState(), 1, 1), BrokerConfig(), response_records, PartitionClocks())
        self._offset = 0

    def apply(self, *names: str) -> Sequence[GroupOutput]:
        """Apply messages in one cut."""
        records = []
        for name in names:
            api_key, body = MESSAGES[name]
            envelope = request(api_key, "g", body, member_id="anna", reply_partition=0)
            records.append(LogRecord("requests", 0, self._offset, self._offset, b"g", envelope.encoded(), ()))
            self._offset += 1
        times_ms = [record.timestamp_ms for record in records]
        return self.groups.apply(TakenCut(0, records, times_ms, self._offset, self._offset))

    def finish_rebuild(self) -> list[str]:
        """Finish the only rebuild, and return the statuses that it leaves."""
        (rebuild,) = self.groups.take_new_rebuilds()
        rebuild.rows = []
        (output,) = self.groups.finish_rebuild(rebuild, self._offset)
        return [row.payload["status"] for row in output.rows if "status" in row.payload]


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def fail(*_: object) -> None:
    raise TypeError("a bug")


@pytest.mark.parametrize(
    ("broken", "first", "queued", "statuses"),
    [
        pytest.param("describe", ["describe"], ["describe"], ["FAILED", "FAILED"], id="two descriptions"),
        pytest.param("receive", ["message"], ["message"], ["FAILED"], id="two messages"),
        pytest.param("finish", ["message"], ["message", "resume"], ["FAILED", "FAILED"], id="the end of the cut"),
        pytest.param("receive", ["message"], ["resume", "message"], ["FAILED", "FAILED"], id="resumed too early"),
    ],
)
def test_a_group_that_fails_again_is_quarantined(
    partition: Partition,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    first: list[str],
    queued: list[str],
    statuses: list[str],
) -> None:
    monkeypatch.setattr(Leader, broken, fail)
    assert list(partition.apply(*first)) == []
    assert list(partition.apply(*queued)) == []
    assert partition.finish_rebuild() == statuses
    (output,) = partition.apply("message")
    assert [row.payload["status"] for row in output.rows] == []
