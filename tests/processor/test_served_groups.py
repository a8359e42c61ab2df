"""A processor serves the groups that its pattern matches, and refuses all others."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sharegroup.audit.replay.request_replay import RequestReplay
from sharegroup.audit.replay.verify_requests import verify_requests
from sharegroup.audit.verification.verify import verify
from sharegroup.client.kafka_exceptions import KafkaError, KafkaException
from sharegroup.errors import GroupAuthorizationFailedError, InvalidRequestError
from sharegroup.logs.partitioner import partition_for
from sharegroup.protocol.api_key import INTERNAL_KEYS, RECIPIENTS, ApiKey
from tests.support.eventually import DEADLINE_S
from tests.support.scraping import scraped
from tests.support.server_process import free_port
from tests.support.site import BROKER, REQUEST_PARTITIONS, Site, places

pytestmark = pytest.mark.slow

NewSite = Callable[..., Site]
ALICE = {"processor_group_pattern": "alice-.*"}
OF_GROUPS = sorted(key for key, roles in RECIPIENTS.items() if roles)
WITH_RESPONSE = [key for key in OF_GROUPS if key not in INTERNAL_KEYS]


def send(site: Site, api_key: int, group_id: str, correlation_id: int, partition: int | None = None) -> None:
    reply_partition = -1 if api_key in INTERNAL_KEYS else 0
    envelope = {
        "api_key": api_key,
        "correlation_id": correlation_id,
        "group_id": group_id,
        "member_id": "mallory",
        "reply_partition": reply_partition,
        "leader_epoch": 99 if api_key in INTERNAL_KEYS else -1,
    }
    in_order = partition_for(group_id, REQUEST_PARTITIONS)
    site.append_request(json.dumps(envelope).encode(), in_order if partition is None else partition)


def responses(site: Site) -> dict[int, tuple[str, int]]:
    """Correlation id → group and error code of mallory's responses."""
    return {
        response.correlation_id: (response.group_id, response.body["error_code"])
        for response in site.all_responses()
        if response.member_id == "mallory"
    }


def test_every_message_for_another_group_is_refused(new_site: NewSite) -> None:
    site = new_site()
    site.config = ALICE
    other_groups = ("bob-orders", "my-alice-orders", "alice", "ALICE-orders", "bob\nalice-orders", "Ölice-")
    with site.running() as running:
        numbers: dict[int, tuple[int, str]] = {}
        for group_id in other_groups:
            for api_key in OF_GROUPS:
                numbers[len(numbers)] = (api_key, group_id)
                send(site, api_key, group_id, len(numbers) - 1)
        elsewhere = 1 - partition_for("alice-orders", REQUEST_PARTITIONS)
        send(site, ApiKey.SHARE_FETCH, "alice-orders", 1_000, elsewhere)
        expected = {
            number: (group_id, GroupAuthorizationFailedError.code)
            for number, (api_key, group_id) in numbers.items()
            if api_key in WITH_RESPONSE
        }
        expected[1_000] = ("alice-orders", InvalidRequestError.code)
        site.until(lambda: len(responses(site)) == len(expected), "all requests have responses")
        assert responses(site) == expected
        # Internal messages get no responses, from anybody.
        refused = len(other_groups) * (len(OF_GROUPS) - len(WITH_RESPONSE))
        site.until(lambda: running.processor.figures.undecodable_messages == refused, "the others are counted")
    assert {row.group_id for row in site.rows()} == {""}


def test_administrators_see_and_change_served_groups_only(new_site: NewSite) -> None:
    site = new_site()
    site.config = ALICE
    with site.running():
        # A line break is a character of the name.
        for group_id in ("alice-orders", "alice-\norders"):
            site.new_group(group_id)
        for ask in (
            lambda: site.new_group("bob-orders"),
            lambda: site.admin.pause_group("bob-orders"),
        ):
            with pytest.raises(GroupAuthorizationFailedError, match=r"Group bob-orders is not served here: .*alice-"):
                ask()
        for results in (
            site.admin.delete_share_groups(["bob-orders"]),
            site.admin.describe_configs(["bob-orders"]),
            site.admin.list_share_group_offsets({"bob-orders": None}),
        ):
            assert isinstance(results["bob-orders"], GroupAuthorizationFailedError)
        assert [listed.group_id for listed in site.admin.list_groups()] == ["alice-\norders", "alice-orders"]


def test_a_consumer_of_another_group_ends_with_the_code(new_site: NewSite) -> None:
    site = new_site()
    site.config = ALICE
    with site.running():
        topic = site.new_topic(record_count=5)
        with site.consumer("bob-orders", topic) as consumer:
            with pytest.raises(KafkaException) as refused:
                site.poll(consumer, 1)
            error = refused.value.args[0]
            assert (error.code(), error.fatal()) == (KafkaError.GROUP_AUTHORIZATION_FAILED, True)


def test_state_of_groups_that_are_not_served_any_more_rests(new_site: NewSite) -> None:
    site = new_site()
    groups = ("alice-orders", "bob-orders")
    with site.running():
        topic = site.new_topic(record_count=20)
        for group_id in groups:
            site.new_group(group_id)
            with site.consumer(group_id, topic, max_poll_records=10) as consumer:
                site.poll(consumer, 10)
                consumer.commit_sync(DEADLINE_S)
    before = len(site.rows("bob-orders"))
    site.config = {**ALICE, "metrics_port": free_port(), "metrics_domain": "alice"}
    with site.running() as running:
        assert [listed.group_id for listed in site.admin.list_groups()] == ["alice-orders"]
        assert {labels[:2] for labels in scraped(running.settings.processor.metrics_port)["sharegroup_lag"]} == {
            ("alice", "alice-orders")
        }
        with site.consumer("alice-orders", topic) as consumer:
            assert places(site.poll(consumer, 10)) == {(0, offset) for offset in range(10, 20)}
        with site.consumer("bob-orders", topic) as consumer, pytest.raises(KafkaException):
            site.poll(consumer, 1)
    assert len(site.rows("bob-orders")) == before
    site.config = {}
    with site.running(), site.consumer("bob-orders", topic) as consumer:
        assert places(site.poll(consumer, 10)) == {(0, offset) for offset in range(10, 20)}
    assert verify(site.rows(), BROKER).findings == []
    # The replay refuses what was refused: each Fence has the pattern of its processor.
    replayed = verify_requests(RequestReplay(str(site.state_path), site.log, site.settings.processor, BROKER))
    assert (replayed.findings, replayed.gaps) == ([], [])
