"""The admin client against the real actors."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from socket import gethostname

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.group_results import (
    ConfigSource,
    GroupListing,
    Node,
    ShareGroupDescription,
    SharePartitionOffsetInfo,
)
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.errors import (
    ApiError,
    ConfigurationError,
    GroupIdNotFoundError,
    InvalidConfigError,
    InvalidRequestError,
    LogUnavailableError,
    NonEmptyGroupError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicError,
    UnknownTopicOrPartitionError,
)
from sharegroup.logs.local import LocalLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_description import GroupStateName
from sharegroup.protocol.messages import ResponseEnvelope, decoded_request
from tests.client.processor_peer import REQUEST_PARTITIONS, REQUESTS, RESPONSES, ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually


def test_configuration_of_a_group_is_changed(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log, client_id="ops")
    admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"}, delete=["share.isolation.level"])
    sent = processor.sent(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    assert [(envelope.group_id, envelope.client_id, envelope.body) for envelope in sent] == [
        ("g", "ops", {"set": {"share.auto.offset.reset": "earliest"}, "delete": ["share.isolation.level"]})
    ]


def test_a_refusal_is_raised_as_what_it_is(log: LocalLog, processor: ProcessorPeer) -> None:
    with pytest.raises(InvalidConfigError, match=r"share\.auto\.offset\.reset"):
        AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "sometimes"})


def test_a_group_is_resumed(log: LocalLog, processor: ProcessorPeer) -> None:
    AdminClient(log).resume_group("g")
    assert [envelope.group_id for envelope in processor.sent(ApiKey.RESUME_SHARE_GROUP)] == ["g"]


def test_groups_of_all_request_partitions_are_listed(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    assert admin.list_groups() == []
    names = [f"group-{number}" for number in range(6)]
    assert len({partition_for(name, REQUEST_PARTITIONS) for name in names}) == REQUEST_PARTITIONS
    for name in names:
        admin.alter_group_config(name, {"share.auto.offset.reset": "earliest"})
    assert admin.list_groups() == [GroupListing(name, GroupStateName.EMPTY) for name in names]
    assert admin.list_groups(states=["Stable"]) == []
    assert [group.group_id for group in admin.list_groups(states=["empty"])] == names


def test_a_group_and_its_members_are_described(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    used_group(log, admin)
    with ShareConsumer({"log.path": str(log.path), "group.id": "g", "client.id": "anna", "client.rack": "r"}) as anna:
        anna.subscribe(["orders"])
        eventually(lambda: bool(anna.poll(timeout=0.1)) or anna_has_both(admin), "the assignment")
        described = admin.describe_share_groups(["g", "another"])
    assert isinstance(described["another"], GroupIdNotFoundError)
    group = described["g"]
    assert isinstance(group, ShareGroupDescription)
    assert (group.group_id, group.state, group.quarantine_reason) == ("g", GroupStateName.STABLE, "")
    assert group.target_assignment_epoch <= group.group_epoch
    (member,) = group.members
    assert (member.client_id, member.host, member.rack_id) == ("anna", gethostname(), "r")
    assert member.assignment == (("orders", 0), ("orders", 1))
    assert member.subscribed_topic_names == ("orders",)


def anna_has_both(admin: AdminClient) -> bool:
    group = admin.describe_share_groups(["g"])["g"]
    return isinstance(group, ShareGroupDescription) and any(len(member.assignment) == 2 for member in group.members)


def test_offsets_and_lag_are_listed(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    used_group(log, admin)
    admin.alter_share_group_offsets("g", {("orders", 0): 10, ("orders", 1): 10})
    log.append("orders", 1, [NewRecord(None, b"x")] * 3)
    offsets = {
        ("orders", 0): SharePartitionOffsetInfo(10, 1, 0),
        ("orders", 1): SharePartitionOffsetInfo(10, 1, 3),
    }
    assert admin.list_share_group_offsets({"g": None, "another": None}) == {"g": offsets, "another": {}}
    chosen = [("orders", 1), ("orders", 7)]
    assert admin.list_share_group_offsets({"g": chosen, "another": chosen}) == {
        "g": {("orders", 1): offsets["orders", 1], ("orders", 7): None},
        "another": dict.fromkeys(chosen),
    }
    log.delete_records("orders", 1, 12)
    after_deletion = {("orders", 1): SharePartitionOffsetInfo(10, 1, 1)}
    assert admin.list_share_group_offsets({"g": [("orders", 1)]}) == {"g": after_deletion}


def test_the_configuration_of_groups_is_described(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    admin.alter_group_config("g", {"share.delivery.count.limit": "3"})
    described = admin.describe_configs(["g", "another"])
    limits, intervals = [
        [entries[key] for entries in described.values() if not isinstance(entries, ApiError)]
        for key in ("share.delivery.count.limit", "share.heartbeat.interval.ms")
    ]
    assert [(limit.value, limit.source, limit.is_default) for limit in limits] == [
        ("3", ConfigSource.DYNAMIC_GROUP_CONFIG, False),
        ("5", ConfigSource.DEFAULT_CONFIG, True),
    ]
    # The processor has another default than the release.
    assert [(interval.value, interval.source) for interval in intervals] == [
        ("1000", ConfigSource.STATIC_BROKER_CONFIG)
    ] * 2
    assert admin.list_groups() == [GroupListing("g", GroupStateName.EMPTY)]


def test_a_description_names_the_coordinator_and_the_operations_on_demand(
    log: LocalLog, processor: ProcessorPeer
) -> None:
    admin = AdminClient(log)
    admin.alter_group_config("g", {"share.delivery.count.limit": "3"})
    described = admin.describe_share_groups(["g"])["g"]
    processor.lose_sessions()
    with_operations = admin.describe_share_groups(["g"], include_authorized_operations=True)["g"]
    assert isinstance(described, ShareGroupDescription)
    assert isinstance(with_operations, ShareGroupDescription)
    assert (described.coordinator, with_operations.coordinator) == (Node(1, gethostname()), Node(2, gethostname()))
    assert described.authorized_operations is None
    assert set(with_operations.authorized_operations or ()) == {
        *("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    }


def test_a_configuration_says_where_the_log_is(log: LocalLog, processor: ProcessorPeer) -> None:
    with AdminClient({"log.path": str(log.path), "client.id": "ops"}) as admin:
        admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
        assert [group.group_id for group in admin.list_groups()] == ["g"]
    assert processor.sent(ApiKey.INCREMENTAL_ALTER_CONFIGS)[0].client_id == "ops"
    with pytest.raises(ConfigurationError, match=r"Unknown configuration log\.paht"):
        AdminClient({"log.paht": "x"})


def test_a_call_without_a_timeout_has_that_of_the_configuration(log: LocalLog) -> None:
    log.create_topic(REQUESTS, REQUEST_PARTITIONS)
    log.create_topic(RESPONSES, 1)
    with AdminClient({"log.path": str(log.path), "default.api.timeout.ms": 150}) as admin:
        with pytest.raises(RequestTimedOutError, match=r"within 0\.15 s"):
            admin.list_groups()
        with pytest.raises(RequestTimedOutError, match=r"within 0\.05 s"):
            admin.list_groups(timeout=0.05)


def test_keys_and_callbacks_of_librdkafka_reach_its_clients() -> None:
    errors: list[object] = []
    config = {
        **{"metadata.broker.list": "127.0.0.1:1", "default.api.timeout.ms": 1_000, "ssl.ca.pem": None},
        **{"socket.timeout.ms": 5_000, "error_cb": errors.append},
    }
    with AdminClient(config) as admin, pytest.raises(LogUnavailableError, match=r"127\.0\.0\.1:1"):
        admin.list_groups()
    assert errors
    with pytest.raises(ConfigurationError, match=r"socket\.timeout\.ms"):
        AdminClient({**config, "socket.timeout.ms": "soon"})
    with pytest.raises(TypeError, match="error_cb"):
        AdminClient({**config, "error_cb": "print"})


def used_group(log: LocalLog, admin: AdminClient) -> None:
    """Group `g` has read from `orders`, which has two partitions with ten records each, and has no members any more."""
    log.create_topic("orders", 2, {})
    for partition in range(2):
        log.append("orders", partition, [NewRecord(None, b"x")] * 10)
    admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
    with ShareConsumer({"log.path": str(log.path), "group.id": "g"}) as consumer:
        consumer.subscribe(["orders"])
        taken = 0
        while taken < 20:
            taken += len(consumer.poll(timeout=DEADLINE_S))


def test_start_offsets_are_altered_one_by_one(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    used_group(log, admin)
    results = admin.alter_share_group_offsets("g", {("orders", 0): 7, ("orders", 1): 9, ("orders", 2): 0})
    refused = results.pop(("orders", 2))
    assert isinstance(refused, UnknownTopicOrPartitionError)
    assert results == {("orders", 0): None, ("orders", 1): None}
    with ShareConsumer({"log.path": str(log.path), "group.id": "g"}) as consumer:
        consumer.subscribe(["orders"])
        taken: list[tuple[int | None, int | None]] = []
        while len(taken) < 4:
            taken += [(message.partition(), message.offset()) for message in consumer.poll(timeout=DEADLINE_S)]
        assert sorted(taken, key=str) == [(0, 7), (0, 8), (0, 9), (1, 9)]
        with pytest.raises(NonEmptyGroupError):
            admin.alter_share_group_offsets("g", {("orders", 0): 0})
    with pytest.raises(InvalidRequestError, match="start_offset"):
        admin.alter_share_group_offsets("g", {("orders", 0): -1})


def test_offsets_of_topics_are_deleted(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    used_group(log, admin)
    results = admin.delete_share_group_offsets("g", ["orders", "nothing"])
    assert results["orders"] is None
    assert isinstance(results["nothing"], UnknownTopicOrPartitionError)
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_share_group_offsets("another", ["orders"])


def test_groups_are_deleted(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    used_group(log, admin)
    results = admin.delete_share_groups(["g", "another"])
    assert results["g"] is None
    assert isinstance(results["another"], GroupIdNotFoundError)


def test_silence_ends_in_a_timeout(log: LocalLog, processor: ProcessorPeer) -> None:
    with (
        processor.stalled(),
        pytest.raises(RequestTimedOutError, match="Group g did not respond to RESUME_SHARE_GROUP"),
    ):
        AdminClient(log).resume_group("g", timeout=0.05)


def test_a_late_response_is_not_taken_for_the_next_one(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    outcome: list[Exception | None] = []

    def alter() -> None:
        try:
            admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
            outcome.append(None)
        except InvalidConfigError as error:
            outcome.append(error)

    second = threading.Thread(target=alter)
    with processor.stalled():
        with pytest.raises(RequestTimedOutError):
            admin.alter_group_config("g", {"share.auto.offset.reset": "sometimes"}, timeout=0.05)
        second.start()
        eventually(lambda: len(processor.sent(ApiKey.INCREMENTAL_ALTER_CONFIGS)) == 2, "both requests")
    second.join()
    assert outcome == [None]


def test_a_response_of_a_processor_that_was_taken_over_from_does_not_count(log: LocalLog) -> None:
    log.create_topic(REQUESTS, 1)
    log.create_topic(RESPONSES, 1)
    with ThreadPoolExecutor(1) as pool:
        resuming = pool.submit(AdminClient(log).resume_group, "g")
        eventually(lambda: log.offsets(REQUESTS)[0].end_offset == 1, "the request")
        asked = decoded_request(log.read(REQUESTS, 0, 0, 1)[0].value)
        refusal = {"error_code": UnknownServerError.code}
        responses = [
            ResponseEnvelope(
                api_key=asked.api_key,
                correlation_id=asked.correlation_id,
                group_id="g",
                member_id=asked.member_id,
                leader_epoch=leader_epoch,
                body=body,
            )
            for leader_epoch, body in ((4, refusal), (5, {}))
        ]
        started = ResponseEnvelope(
            api_key=ApiKey.PROCESSOR_STARTED, correlation_id=-1, group_id="", member_id="", leader_epoch=5
        )
        keys = (None, asked.member_id.encode(), asked.member_id.encode())
        envelopes = (started, *responses)
        log.append(RESPONSES, 0, [NewRecord(k, e.encoded()) for k, e in zip(keys, envelopes, strict=True)])
        assert resuming.result() is None


def test_a_client_outlives_a_state_table_that_is_created_again(log: LocalLog) -> None:
    log.create_topic(REQUESTS, 1)
    log.create_topic(RESPONSES, 1)
    admin = AdminClient(log)

    def respond(number: int, leader_epoch: int) -> None:
        eventually(lambda: log.offsets(REQUESTS)[0].end_offset == number, "the request")
        asked = decoded_request(log.read(REQUESTS, 0, number - 1, number)[0].value)
        response = ResponseEnvelope(
            api_key=asked.api_key,
            correlation_id=asked.correlation_id,
            group_id="g",
            member_id=asked.member_id,
            leader_epoch=leader_epoch,
        )
        log.append(RESPONSES, 0, [NewRecord(asked.member_id.encode(), response.encoded())])

    with ThreadPoolExecutor(1) as pool:
        for number, leader_epoch, has_response in ((1, 5, True), (2, 1, False), (3, 1, True)):
            responding = pool.submit(respond, number, leader_epoch)
            if has_response:
                admin.resume_group("g")
            else:
                with pytest.raises(RequestTimedOutError):
                    admin.resume_group("g", timeout=0.5)
            responding.result()


def test_a_log_without_a_processor_is_refused(log: LocalLog) -> None:
    with pytest.raises(UnknownTopicError, match="__share_requests"):
        AdminClient(log).resume_group("g")
