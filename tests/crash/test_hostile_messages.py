"""Messages that end processes: one that a bug makes fatal, and dozens of enormous ones."""

from __future__ import annotations

import json

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.messages import request
from sharegroup.protocol.share_fetch import ShareAcknowledgeRequest
from tests.crash.deployment import Deployment
from tests.crash.processor_process import EXIT_CODE_OF_THE_BUG
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.site import BROKER, REQUEST_PARTITIONS, REQUESTS

pytestmark = [pytest.mark.slow, pytest.mark.long("processors end again and again")]

_MOST_STARTS = 4
_FATAL = "fatal-client"
_MB = 1024 * 1024
_MOST_MEMORY_MB = 900
"""Of the processor that applies them; without them it has about 150."""


def groups_of_one_partition(deployment: Deployment) -> tuple[str, str]:
    """Return two groups whose messages are in one partition of the request log."""
    first = deployment.site.new_group()
    while True:
        second = deployment.site.new_group()
        if partition_for(first, REQUEST_PARTITIONS) == partition_for(second, REQUEST_PARTITIONS):
            return first, second


def drain(deployment: Deployment, group_id: str, topic: str, count: int) -> None:
    site = deployment.site
    with site.consumer(group_id, topic) as consumer:
        assert len(site.poll(consumer, count)) == count
        consumer.commit_sync()
    deployment.until(lambda: site.is_drained(group_id, topic), f"{group_id} has finished {topic}")


def test_a_message_that_ends_each_processor_is_quarantined_and_all_others_go_on(deployment: Deployment) -> None:
    site = deployment.site
    bad, good = groups_of_one_partition(deployment)
    topic = site.new_topic(record_count=10)
    drain(deployment, bad, topic, 10)
    deployment.processor.kill()
    body = ShareAcknowledgeRequest(share_session_epoch=1)
    fatal = request(ApiKey.SHARE_ACKNOWLEDGE, bad, body, member_id="anna", client_id=_FATAL, reply_partition=0)
    site.append_request(fatal.encoded(), partition_for(bad, REQUEST_PARTITIONS))
    starts = 0

    def has_failed() -> bool:
        return ActorRole.LEADER in site.folded(bad).failures

    while not has_failed():
        assert starts < _MOST_STARTS, deployment.processor.output[-4000:]
        deployment.spawn(fatal_client_id=_FATAL)
        starts += 1
        eventually(lambda: not deployment.processor.is_running or has_failed(), "it ended, or the group is FAILED")
        assert deployment.processor.is_running or deployment.processor.await_end() == EXIT_CODE_OF_THE_BUG
    assert starts > 1, "the first one had no reason to suspect the message"
    drain(deployment, good, topic, 10)
    deployment.processor.kill()
    deployment.spawn(fatal_client_id=_FATAL)
    site.produce(topic, 0, 10)
    drain(deployment, good, topic, 10)
    assert has_failed()
    site.admin.resume_group(bad, timeout=DEADLINE_S)
    drain(deployment, bad, topic, 10)
    assert verify(site.rows(), BROKER).findings == []


def test_dozens_of_enormous_messages_do_not_exhaust_memory(deployment: Deployment) -> None:
    site = deployment.site
    group_id = site.new_group()
    topic = site.new_topic(record_count=10)
    deployment.processor.kill()
    envelope = request(ApiKey.SHARE_ACKNOWLEDGE, group_id, ShareAcknowledgeRequest(share_session_epoch=1))
    fields = {**json.loads(envelope.encoded()), "unknown": "x" * 16 * _MB}
    values = [b"\0" * 16 * _MB, json.dumps(fields).encode()] * 18 + [b"{" * 100 * _MB]
    partition = partition_for(group_id, REQUEST_PARTITIONS)
    for value in values:
        site.log.append(REQUESTS, partition, [NewRecord(None, value)])
    deployment.spawn()
    drain(deployment, group_id, topic, 10)
    used_mb = deployment.processor.peak_memory_mb()
    print(f"peak memory of the processor: {used_mb:.0f} MB")
    assert used_mb < _MOST_MEMORY_MB
