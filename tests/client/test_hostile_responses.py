"""A real member whose part of the response log others write to as well."""

from __future__ import annotations

from random import Random

import pytest

from sharegroup.client.message import Messages
from sharegroup.logs.local import LocalLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from tests.client.consumers import Consume, got, member_of
from tests.client.processor_peer import RESPONSES, ProcessorPeer
from tests.fuzz.hostile_responses import HostileResponses
from tests.support.eventually import DEADLINE_S

RESPONSES_PER_POLL = 200


@pytest.mark.slow
def test_a_consumer_passes_over_what_it_did_not_ask_for(
    log: LocalLog, processor: ProcessorPeer, consume: Consume
) -> None:
    consumer = consume("cl-1")
    member_id = member_of(consumer).member_id
    partition = partition_for(member_id, len(log.offsets(RESPONSES)))
    hostile = HostileResponses(Random(1), "g", member_id)
    polled: list[str] = []
    while len(polled) < 12:
        responses = [NewRecord(member_id.encode(), hostile.unasked()) for _ in range(RESPONSES_PER_POLL)]
        log.append(RESPONSES, partition, responses)
        messages: Messages = consumer.poll(timeout=DEADLINE_S)
        assert messages
        polled.append(got(messages))
    assert polled == [f"{first}-{first + 9}:d1" for first in range(0, 120, 10)]
    assert set(consumer.commit_sync().values()) <= {None}
