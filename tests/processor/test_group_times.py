"""The times at which messages are applied, where a broker's clock is put back and forth."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import LogRecord
from sharegroup.processor.clocks import PartitionClocks
from sharegroup.processor.groups import Groups, TakenCut
from sharegroup.processor.output import ResponseRecords
from sharegroup.processor.takeover.beginning import Beginning
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import RequestEnvelope, request
from sharegroup.state.fold import FoldedState

EPOCH = 7
BACK_MS = 3_600_000


class Partition:
    """A request partition with one group."""

    def __init__(self, folder: Path) -> None:
        config = ProcessorConfig(state_table_path="state", checkpoint_path="checkpoint")
        response_records = ResponseRecords(LocalLog(folder / "log.db"), config)
        clocks = PartitionClocks()
        self._groups = Groups(Beginning(FoldedState(), EPOCH, 1), BrokerConfig(), response_records, clocks)
        self._offset = 0

    def applied_ms(self, stamp_ms: int, cut_ms: int, envelope: RequestEnvelope | None = None) -> int:
        """Apply a message in a cut of its own; return the time at which it was applied."""
        message = envelope or request(ApiKey.SHARE_GROUP_DESCRIBE, "g", Tick(), reply_partition=0)
        record = LogRecord("requests", 0, self._offset, stamp_ms, b"g", message.encoded(), ())
        self._offset += 1
        (output,) = self._groups.apply(TakenCut(0, [record], [stamp_ms], self._offset, cut_ms))
        return output.oldest_ms

    def ticked_ms(self, sent_ms: int, stamp_ms: int) -> int:
        """Apply a Tick of the processor."""
        return self.applied_ms(
            stamp_ms, sent_ms + 10, request(ApiKey.TICK, "g", Tick(time_ms=sent_ms), leader_epoch=EPOCH)
        )


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def test_a_message_has_the_time_that_is_carried_on_while_the_stamps_are_behind(partition: Partition) -> None:
    start_ms = 10 * BACK_MS
    assert partition.ticked_ms(start_ms, start_ms - BACK_MS) == start_ms
    assert partition.applied_ms(start_ms + 500 - BACK_MS, start_ms + 20_000) == start_ms + 500


def test_a_message_that_waited_has_its_append_time_once_the_stamps_are_right_again(partition: Partition) -> None:
    start_ms = 10 * BACK_MS
    partition.ticked_ms(start_ms, start_ms - BACK_MS)
    # The broker's clock is put right, and a message is taken 5 ms after its append.
    assert partition.applied_ms(start_ms + 1_000, start_ms + 1_005) == start_ms + 1_005
    # The processor stands still: an acknowledgement that was appended in time still counts.
    assert partition.applied_ms(start_ms + 2_000, start_ms + 60_000) == start_ms + 2_005
