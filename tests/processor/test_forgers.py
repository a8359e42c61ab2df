"""Forged messages of a member against others of its domain: the threats that docs/security.md names."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.client.group_results import ShareGroupDescription
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.core.record_state import Cause
from sharegroup.errors import FencedProcessorError, GroupIdNotFoundError, OlderStateError
from sharegroup.logs.partitioner import partition_for
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.rows import RecordType, StateRow
from tests.support.processor_thread import ProcessorThread
from tests.support.site import BROKER, REQUEST_PARTITIONS, Site

pytestmark = pytest.mark.slow

NewSite = Callable[..., Site]
ACCEPT = 1


class Forger:
    """Sends messages in the name of others, with nothing but the right to append to the request log."""

    def __init__(self, site: Site, group_id: str) -> None:
        self._site = site
        self._group_id = group_id
        self._numbers = iter(range(7_000_000, 8_000_000))

    def send(self, api_key: ApiKey, body: dict[str, Any], member_id: str = "mallory", **fields: object) -> None:
        envelope = {
            "api_key": api_key,
            "correlation_id": next(self._numbers),
            "client_id": "mallory",
            "group_id": self._group_id,
            "member_id": member_id,
            "reply_partition": 0,
            "body": body,
            **fields,
        }
        self._site.append_request(json.dumps(envelope).encode(), partition_for(self._group_id, REQUEST_PARTITIONS))


class Victim:
    """A member that holds five records of a topic with ten."""

    def __init__(self, site: Site, mode: str = "explicit") -> None:
        self.topic = site.new_topic(record_count=10)
        self.topic_id = site.log.describe_topic(self.topic).topic_id
        self.group_id = site.new_group(share_heartbeat_interval_ms="100")
        self.consumer: ShareConsumer = site.consumer(
            self.group_id, self.topic, share_acknowledgement_mode=mode, max_poll_records=5
        )
        site.poll(self.consumer, 5)
        described = site.admin.describe_share_groups([self.group_id])[self.group_id]
        assert isinstance(described, ShareGroupDescription)
        (self.member_id,) = (member.member_id for member in described.members)

    def __enter__(self) -> Victim:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()


def transitions(site: Site, group_id: str, cause: Cause) -> list[StateRow]:
    return [row for row in site.rows(group_id) if any(entry.cause is cause for entry in row.transitions)]


def acknowledgement(victim: Victim, first_offset: int, last_offset: int) -> dict[str, Any]:
    batch = {"first_offset": first_offset, "last_offset": last_offset, "acknowledge_types": [ACCEPT]}
    partition = {"partition_index": 0, "acknowledgement_batches": [batch]}
    return {"topics": [{"topic_id": victim.topic_id, "partitions": [partition]}]}


def test_records_that_another_member_holds_are_accepted(site: Site) -> None:
    with Victim(site) as victim:
        forger = Forger(site, victim.group_id)
        # A session of the victim's name, in which the locks of that name count.
        forger.send(ApiKey.SHARE_FETCH, {"share_session_epoch": 0, "max_records": 0}, victim.member_id)
        body = {"share_session_epoch": 1, **acknowledgement(victim, 0, 4)}
        forger.send(ApiKey.SHARE_ACKNOWLEDGE, body, victim.member_id)
        (row, *_) = site.until(lambda: transitions(site, victim.group_id, Cause.ACCEPT), "records are accepted")
        # The audit names the message: it is in the request log, with the forger's client id and time.
        (entry, *_) = row.transitions
        (message,) = site.log.read(
            "__share_requests", row.request_partition, entry.request_offset, entry.request_offset + 1
        )
        assert json.loads(message.value or b"")["client_id"] == "mallory"
    assert verify(site.rows(victim.group_id), BROKER).findings == []


def test_another_member_leaves_and_joins_again(site: Site) -> None:
    with Victim(site) as victim:
        forger = Forger(site, victim.group_id)
        forger.send(ApiKey.SHARE_GROUP_HEARTBEAT, {"member_epoch": -1}, victim.member_id)
        removed = {"type": "ShareGroupMemberRemoved", "member_id": victim.member_id}
        site.until(lambda: any(removed.items() <= record.items() for record in records(site, victim)), "it is out")
        site.until(lambda: is_member(site, victim), "it has joined again")


def records(site: Site, victim: Victim) -> list[dict[str, Any]]:
    rows = site.rows(victim.group_id, RecordType.GROUP_METADATA)
    return [record for row in rows for record in row.payload["records"]]


def is_member(site: Site, victim: Victim) -> bool:
    return victim.member_id in site.folded(victim.group_id).metadata.members


def test_an_administrators_requests_are_anybodys(site: Site) -> None:
    with Victim(site) as victim:
        forger = Forger(site, victim.group_id)
        forger.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"set": {"share.delivery.count.limit": "2"}})
        site.until(
            lambda: site.folded(victim.group_id).metadata.config_overrides.get("share.delivery.count.limit") == "2",
            "it is configured",
        )
        forger.send(ApiKey.PAUSE_SHARE_GROUP, {"reason": "by mallory"})
        site.until(lambda: site.folded(victim.group_id).metadata.pause is not None, "it is paused")
    Forger(site, victim.group_id).send(ApiKey.DELETE_GROUPS, {})
    site.until(lambda: site.folded(victim.group_id).metadata.is_dead, "it is deleted")
    assert isinstance(site.admin.describe_share_groups([victim.group_id])[victim.group_id], GroupIdNotFoundError)


def test_offsets_of_the_log_are_believed(site: Site) -> None:
    """Offsets that no record has yet are handed out, and members report them as gaps: later records are passed over."""
    with Victim(site, "implicit") as victim:
        processor = site.running_processor().processor
        offsets = {"partition_index": 0, "start_offset": 0, "end_offset": 1_000, "last_stable_offset": 1_000}
        lookup = {
            "topic": victim.topic,
            "topic_id": victim.topic_id,
            "partition_count": 1,
            "partitions": [offsets],
            "sequence": 1_000_000,
        }
        Forger(site, victim.group_id).send(
            ApiKey.LOG_OFFSETS,
            {"topics": [lookup]},
            "",
            reply_partition=-1,
            leader_epoch=processor.leader_epoch,
        )
        site.until(lambda: (victim.consumer.poll(0.1) and None) or is_past(site, victim, 10), "more is handed out")


def is_past(site: Site, victim: Victim, offset: int) -> bool:
    folded = site.share_partition(victim.group_id)
    return folded is not None and folded.share_partition.next_offset > offset


def test_a_member_reads_which_offsets_others_hold(site: Site) -> None:
    with Victim(site) as victim:
        acquired = [
            (partition["first_offset"], partition["last_offset"])
            for response in site.responses(victim.group_id)
            if response.api_key == ApiKey.SHARE_FETCH
            for topic in response.body.get("responses", [])
            for acquired in topic["partitions"]
            for partition in acquired.get("acquired_records", [])
        ]
        assert acquired


def test_an_announcement_ends_the_processor(new_site: NewSite) -> None:
    site = new_site()
    processor = site.start()
    victim = site.new_group()
    Forger(site, victim).send(ApiKey.PROCESSOR_STARTED, {}, "", group_id="", reply_partition=-1, leader_epoch=1_000_000)
    with pytest.raises(FencedProcessorError):
        processor.await_failure()
    site.stop()
    # The state table knows nothing of that epoch, so it looks like an older copy until an administrator says otherwise.
    with pytest.raises(OlderStateError):
        site.start()
    site.processor = ProcessorThread(site.settings, accepts_older_state=True)
    site.processor.start()
    assert [group.group_id for group in site.admin.list_groups()] == [victim]
