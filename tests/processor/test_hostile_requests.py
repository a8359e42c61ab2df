"""Hostile requests in a running processor: it goes on, and so do all others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from sharegroup.actor.decoding import MAX_REQUEST_BYTES
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.errors import MessageTooLargeError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from tests.fuzz.hostile_sender import HostileSender, Victim
from tests.support.site import REQUEST_PARTITIONS, REQUESTS, Site

pytestmark = pytest.mark.slow

ATTACKS_PER_TURN = 500
TURNS = 6


@pytest.fixture
def own_site(new_site: Callable[..., Site]) -> Site:
    """A running processor whose rows tell of attacks, which an audit of a shared one would find."""
    site = new_site()
    # Fetches that ask for more wait as long.
    site.broker = {"group_share_session_timeout_ms": 10_000}
    site.start()
    return site


@pytest.mark.long("thousands of hostile messages")
def test_hostile_records_stop_neither_the_query_nor_the_members(own_site: Site) -> None:
    site = own_site
    topic = site.new_topic(partition_count=2, record_count=60)
    attacked, beside = (site.new_group(share_record_lock_duration_ms="5000") for _ in range(2))
    metrics = site.running_processor().processor.figures
    counted_before = metrics.undecodable_messages
    topic_id = site.log.describe_topic(topic).topic_id
    sender = HostileSender(
        Random(7),
        Victim(attacked, topic, topic_id, end_offset=60),
        Victim(site.new_group(), topic, topic_id, end_offset=60),
        REQUEST_PARTITIONS,
    )
    sent: Counter[tuple[str, int]] = Counter()
    with (
        site.consumer(attacked, topic, max_poll_records=10) as consumer,
        site.consumer(beside, topic, max_poll_records=10) as other,
    ):
        for _ in range(TURNS):
            sent += attack(site, sender)
            other.poll(timeout=1)
            consumer.poll(timeout=1)
        for member, group_id in ((other, beside), (consumer, attacked)):
            site.until(partial(drains, site, member, group_id, topic), f"{group_id} is drained")

    response_counts = site.until(lambda: counts_of_all(site, sent), "every good envelope has a response")
    assert {asked: response_counts[asked] for asked, count in sent.items() if response_counts[asked] > count} == {}
    assert metrics.undecodable_messages > counted_before
    assert site.folded(attacked).failures == {}


def attack(site: Site, sender: HostileSender) -> Counter[tuple[str, int]]:
    """Append records to the request log; how often each (member id, correlation id) must get a response at most."""
    attacks = [sender.attack() for _ in range(ATTACKS_PER_TURN)]
    batches = [
        (REQUESTS, partition, [NewRecord(None, attack.value) for attack in attacks if attack.partition == partition])
        for partition in range(REQUEST_PARTITIONS)
    ]
    site.log.append_all(batches)
    return Counter(attack.asked for attack in attacks if attack.asked)


def drains(site: Site, consumer: ShareConsumer, group_id: str, topic: str) -> bool:
    """Poll; read the state only when nothing came, for that may take longer than the locks that an attack set."""
    return not consumer.poll(timeout=0.2) and site.is_drained(group_id, topic)


def counts_of_all(site: Site, sent: Counter[tuple[str, int]]) -> Counter[tuple[str, int]] | None:
    """(member id, correlation id) → number of responses, once all have one; fetches that wait get theirs in time."""
    response_counts = Counter((response.member_id, response.correlation_id) for response in site.all_responses())
    return response_counts if all(response_counts[asked] for asked in sent) else None


def test_the_response_to_a_request_of_10_mb_tells_its_size_and_the_bound(site: Site) -> None:
    group_id = site.new_group()
    partition = partition_for(group_id, REQUEST_PARTITIONS)
    metrics = site.running_processor().processor.figures
    before = metrics.undecodable_messages
    envelope = {
        "api_key": int(ApiKey.SHARE_FETCH),
        "correlation_id": 7,
        "group_id": group_id,
        "member_id": "member",
        "reply_partition": 0,
        "body": {"share_session_epoch": 0, "filler": "x" * 10_000_000},
    }
    value = json.dumps(envelope).encode()
    site.append_request(value, partition)
    site.append_request(b"x" * 10_000_000, partition)
    (response,) = site.until(lambda: [a for a in site.responses(group_id) if a.member_id == "member"], "the response")
    assert response.body["error_code"] == MessageTooLargeError.code
    assert str(len(value)) in response.body["error_message"]
    assert str(MAX_REQUEST_BYTES) in response.body["error_message"]
    site.until(lambda: metrics.undecodable_messages > before, "the one without an address is counted")
