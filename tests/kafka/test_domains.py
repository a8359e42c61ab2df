"""Two domains with Kafka's ACLs: each role can do its work and nothing else, and no forgery crosses the border."""

from __future__ import annotations

import itertools
import json
import logging
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from sharegroup.audit.replay.request_replay import RequestReplay
from sharegroup.audit.replay.verify_requests import verify_requests
from sharegroup.audit.verification.verify import verify
from sharegroup.client.group_results import ShareGroupDescription
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.core.record_state import Cause
from sharegroup.errors import ApiError, FencedProcessorError, GroupAuthorizationFailedError, LogAccessDeniedError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.programs.main import program
from sharegroup.protocol.api_key import INTERNAL_KEYS, RECIPIENTS, ApiKey
from tests.kafka.domains import Domain, bindings, commands
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.fast_start import JAVA_OPTIONS
from tests.support.kafka_broker import ROLES, ROOT, KafkaBroker
from tests.support.site import BROKER, places

pytestmark = [pytest.mark.slow, pytest.mark.long("a broker with rights for each role, a JVM of its own")]

FIRST_FORGED = 7_000_000
NO_TOPIC_ID = "AAAAAAAAQACAAAAAAAAAAA"


@contextmanager
def started_domains(
    names: tuple[str, str], broker: KafkaBroker, cluster: KafkaLog, folder: Path
) -> Iterator[tuple[Domain, Domain]]:
    """Two domains; each has a group, and 20 records in each partition."""
    first, second = (Domain(name, broker, folder / name) for name in names)
    try:
        first.start(cluster)
        second.start(cluster)
        yield first, second
    finally:
        first.close()
        second.close()


@pytest.fixture(scope="module")
def domains(
    kafka_4_3_1: KafkaBroker, kafka_log_4_3_1: KafkaLog, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Domain, Domain]]:
    """Alice's and Bob's domain, for all tests that leave both processors running."""
    folder = tmp_path_factory.mktemp("domains")
    with started_domains(("alice", "bob"), kafka_4_3_1, kafka_log_4_3_1, folder) as domains:
        yield domains


# --- What each role may do ---

OPERATIONS: dict[str, Callable[[KafkaLog, str], object]] = {
    "describe": lambda log, topic: log.offsets(topic),
    "configs": lambda log, topic: log.describe_topic(topic),
    "read": lambda log, topic: log.read(topic, 0, 0, 1),
    "write": lambda log, topic: log.append(topic, 0, [NewRecord(None, b"no request")]),
    "create": lambda log, topic: log.create_topic(f"{topic}.{uuid4().hex[:8]}", 1),
    "delete records": lambda log, topic: log.delete_records(topic, 0, 1),
    "delete topic": lambda log, topic: log.delete_topic(topic),
}
RIGHTS = """
            requests                           responses                          orders                 dead_letters
processor   describe,configs,read,write,create describe,configs,read,write,create describe,configs,read  describe,configs,read,write
member      describe,configs,write             describe,configs,read              describe,configs,read  -
operator    describe,configs,write             describe,configs,read              describe,configs       describe,configs
auditor     describe,configs,read              describe,configs                   describe,configs       describe,configs
"""  # noqa: E501 - a table


def refusal_of(operation: Callable[[], object]) -> str:
    """The text of a denial; "" when the operation succeeds."""
    try:
        operation()
    except LogAccessDeniedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_its_rights_and_no_other(domains: tuple[Domain, Domain], role: str) -> None:
    alice, bob = domains
    header, *lines = (line.split() for line in RIGHTS.strip().splitlines())
    columns = dict(zip(header, next(line[1:] for line in lines if line[0] == role), strict=True))
    log = alice.log(role)
    for name, operation in OPERATIONS.items():
        for column, rights in columns.items():
            topic = getattr(alice, column)
            denial = refusal_of(lambda op=operation, t=topic: op(log, t))  # type: ignore[misc]
            assert (not denial) == (name in rights.split(",")), f"{role}: {name} {topic}: {denial or 'allowed'}"
        unknown = f"bob.{uuid4().hex[:8]}"
        of_unknown = refusal_of(lambda op=operation, t=unknown: op(log, t))  # type: ignore[misc]
        for topic in (bob.requests, bob.responses, bob.orders, bob.dead_letters):
            denial = refusal_of(lambda op=operation, t=topic: op(log, t))  # type: ignore[misc]
            assert denial, f"{role}: {name} {topic}: allowed"
            # Nothing tells a topic of bob's from one that does not exist.
            assert without_suffix(denial, topic) == without_suffix(of_unknown, unknown)


def without_suffix(text: str, topic: str) -> str:
    """An error without the topic's name; a new topic has a longer one."""
    return " ".join(word for word in text.split() if topic not in word)


def test_no_role_sees_or_touches_anything_of_another_domain_in_the_cluster(domains: tuple[Domain, Domain]) -> None:
    alice, bob = domains
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        bob.orders,
        incremental_configs=[ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)],
    )
    everything = acl_filter(None)
    (grant, *_) = bindings(commands("member", "bob")[1])
    grant.principal = "User:alice-member"
    for role in ROLES:
        properties: dict[str, str | int | float | bool] = {**alice.login(role).client_properties()}
        admin = AdminClient(properties)
        assert {name.partition(".")[0] for name in admin.list_topics(timeout=DEADLINE_S).topics} <= {"alice"}
        assert admin.list_consumer_groups().result().valid == []
        assert admin.describe_acls(everything).result() == []
        attempts: dict[str, list[Future[Any]]] = {
            "create an ACL": list(admin.create_acls([grant]).values()),
            "alter a topic": list(admin.incremental_alter_configs([resource]).values()),
            "add partitions": list(admin.create_partitions([NewPartitions(bob.orders, 9)]).values()),
        }
        codes = {name: [code_of(future) for future in futures] for name, futures in attempts.items()}
        assert codes == {
            "create an ACL": [KafkaError.CLUSTER_AUTHORIZATION_FAILED],
            "alter a topic": [KafkaError.TOPIC_AUTHORIZATION_FAILED],
            "add partitions": [KafkaError.TOPIC_AUTHORIZATION_FAILED],
        }
        with pytest.raises(KafkaException) as fenced:
            Producer({**properties, "transactional.id": "bob"}).init_transactions(20)
        assert fenced.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def acl_filter(principal: str | None) -> AclBindingFilter:
    """All rights, of one principal if it is given."""
    return AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        principal,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def code_of(future: Future[Any]) -> int:
    """The code of an operation's error; 0 when it succeeds."""
    try:
        future.result()
    except KafkaException as denied:
        return int(denied.args[0].code())
    return 0


def test_the_commands_are_kafkas_own(kafka_4_3_1: KafkaBroker) -> None:
    """Kafka's kafka-acls reads the document's commands as the other tests do."""
    domain = f"d{uuid4().hex[:8]}"
    arguments = commands("processor", domain)[0]
    jars = ROOT / "build" / "jars" / f"broker-{kafka_4_3_1.version}"
    java = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java"
    main = [java, *JAVA_OPTIONS.split(), "-cp", f"{jars}/*", "org.apache.kafka.tools.AclCommand"]
    subprocess.run(
        [*main, "--bootstrap-server", kafka_4_3_1.bootstrap_servers, *arguments], check=True, capture_output=True
    )
    admin = AdminClient({"bootstrap.servers": kafka_4_3_1.bootstrap_servers})
    wanted = acl_filter(f"User:{domain}-processor")
    added = eventually(lambda: admin.describe_acls(wanted).result(), "the rights are there")
    assert sorted(map(str, added)) == sorted(map(str, bindings(arguments)))


def test_each_role_can_do_its_work(domains: tuple[Domain, Domain]) -> None:
    alice, _ = domains
    dead = {"errors.deadletterqueue.topic.name": alice.dead_letters, "share.auto.offset.reset": "earliest"}
    group_id = "alice.rejecting"
    alice.admin.alter_group_config(group_id, {**dead, "errors.deadletterqueue.copy.record.enable": "true"})
    with alice.consumer(group_id, share_acknowledgement_mode="explicit", max_poll_records=40) as consumer:
        messages = alice.site.poll(consumer, 40)
        assert places(messages) == set(itertools.product(range(2), range(20)))
        for message in messages:
            is_bad = message.offset() == 3
            consumer.acknowledge(message, AcknowledgeType.REJECT if is_bad else AcknowledgeType.ACCEPT)
        consumer.commit_sync(DEADLINE_S)
    alice.site.until(lambda: alice.site.is_drained(group_id, alice.orders), "the dead-letter records are written")
    end_offset = alice.log("processor").offsets(alice.dead_letters)[0].end_offset
    written = alice.log("processor").read(alice.dead_letters, 0, end_offset - 2, end_offset)
    assert [record.value for record in written] == [b"of alice"] * 2
    offsets = alice.admin.list_share_group_offsets({group_id: None})[group_id]
    assert not isinstance(offsets, ApiError)
    assert {key: info and info.lag for key, info in offsets.items()} == {(alice.orders, 0): 0, (alice.orders, 1): 0}
    assert group_id in {group.group_id for group in alice.admin.list_groups()}
    assert verify(alice.site.rows(), BROKER).findings == []
    replayed = verify_requests(
        RequestReplay(str(alice.site.state_path), alice.log("auditor"), alice.site.settings.processor, BROKER)
    )
    assert (replayed.findings, replayed.gaps) == ([], [])
    assert replayed.message_count > 0


def test_the_command_line_of_each_domain_shows_its_own(domains: tuple[Domain, Domain], tmp_path: Path) -> None:
    alice, bob = domains
    for domain in domains:
        domain.write_config(tmp_path / f"{domain.name}.yaml")

    def run(*arguments: str, of: Domain) -> Result:
        return CliRunner().invoke(program, [*arguments, "--config", str(tmp_path / f"{of.name}.yaml")])

    for domain, other in ((alice, bob), (bob, alice)):
        groups = json.loads(run("groups", "list", "--output", "json", of=domain).stdout)
        names = {group["group_id"] for group in groups}
        assert domain.group_id in names
        topics = json.loads(run("topics", "list", "--output", "json", of=domain).stdout)
        names |= {topic["topic"] for topic in topics}
        assert {name.partition(".")[0] for name in names} == {domain.name}
        assert f'domain="{domain.name}"' in run("metrics", of=domain).stdout
        pause = run("groups", "pause", "--group", other.group_id, "--reason", "by the neighbour", of=domain)
        assert pause.exit_code != 0
        assert f"Group {other.group_id} is not served here" in pause.output + str(pause.exception)
        assert run("topics", "describe", "--topic", other.orders, of=domain).exit_code != 0


# --- Forgeries ---


BODIES: dict[ApiKey, Callable[[str, str], dict[str, Any]]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: lambda name, _: {"member_epoch": 0, "subscribed_topic_names": [name]},
    ApiKey.SHARE_FETCH: lambda _, topic_id: {
        "share_session_epoch": 0,
        "max_wait_ms": 0,
        "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}],
    },
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda name, _: {
        "topics": [{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    },
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda name, _: {"topics": [{"topic_name": name}]},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda name, _: {"topics": [{"topic_name": name}]},
}
"""Kind → body of a request that names a topic, by its name and its id."""


def envelope(number: int, api_key: int, group_id: str, member_id: str = "mallory", **fields: Any) -> dict[str, Any]:
    return {
        "api_key": api_key,
        "correlation_id": FIRST_FORGED + number,
        "client_id": "mallory",
        "group_id": group_id,
        "member_id": member_id,
        "reply_partition": 0,
        "body": {},
        **fields,
    }


def forged_responses(domain: Domain) -> dict[int, Any]:
    """Number of a forgery → its response."""
    return {
        response.correlation_id - FIRST_FORGED: response
        for response in domain.all_responses()
        if response.correlation_id >= FIRST_FORGED
    }


def test_no_forged_request_reaches_another_domain(
    domains: tuple[Domain, Domain], kafka_log_4_3_1: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    alice, bob = domains
    with bob.consumer(share_acknowledgement_mode="explicit", max_poll_records=5) as consumer:
        held = bob.site.poll(consumer, 5)
        described = bob.admin.describe_share_groups([bob.group_id])[bob.group_id]
        assert isinstance(described, ShareGroupDescription)
        (bob_member,) = (member.member_id for member in described.members)
        bob_topic_id = kafka_log_4_3_1.describe_topic(bob.orders).topic_id
        ends = {topic: kafka_log_4_3_1.offsets(topic) for topic in (bob.orders, bob.dead_letters)}
        numbers = itertools.count()
        refused: dict[int, str] = {}
        forgeries: list[dict[str, Any]] = []
        # 1. In the name of bob's groups and members, as a member, an administrator and a processor.
        for api_key, roles in RECIPIENTS.items():
            for member_id in (bob_member, "mallory") if roles else ():
                number = next(numbers)
                is_internal = api_key in INTERNAL_KEYS
                fields = {"leader_epoch": 1_000_000, "reply_partition": -1} if is_internal else {}
                forgeries.append(envelope(number, api_key, bob.group_id, member_id, **fields))
                if not is_internal:
                    refused[number] = bob.group_id
        # 2. For responses in other partitions: all that there are, and some that there are not.
        for reply_partition in (0, 1, 2, 3, 4, 99, -1, 2**31 - 1):
            number = next(numbers)
            forgeries.append(
                envelope(number, ApiKey.SHARE_GROUP_DESCRIBE, bob.group_id, bob_member, reply_partition=reply_partition)
            )
            if 0 <= reply_partition < 4:
                refused[number] = bob.group_id
        # 3. In alice's own group, with bob's member id, topic names and topic ids, and with names that nobody has.
        pairs: dict[int, int] = {}
        names = (bob.orders, "bob.nobodys", bob_topic_id, NO_TOPIC_ID)
        for kind, body in BODIES.items():
            twins = [next(numbers), next(numbers)]
            pairs[twins[0]] = twins[1]
            for number, name, topic_id, group_id, member_id in zip(
                twins,
                (bob.orders, "bob.nobodys"),
                (bob_topic_id, NO_TOPIC_ID),
                ("alice.twin-1", "alice.twin-2"),
                (bob_member, "mallory"),
                strict=True,
            ):
                forgeries.append(envelope(number, kind, group_id, member_id, body=body(name, topic_id)))
        for forgery in forgeries:
            alice.send(forgery)
        expected = {*refused, *pairs.keys(), *pairs.values()}
        eventually(lambda: expected <= forged_responses(alice).keys(), "all forgeries have responses")
        responses = forged_responses(alice)
        assert responses.keys() == expected
        for number, group_id in refused.items():
            response = responses[number]
            assert (response.group_id, response.body["error_code"]) == (group_id, GroupAuthorizationFailedError.code)
        for number, twin in pairs.items():
            assert anonymous(responses[number].body, names) == anonymous(responses[twin].body, names)
            assert not responses[number].body.get("assignment")
        # 4. Dead-letter records into bob's topics.
        with caplog.at_level(logging.WARNING, "sharegroup.processor"):
            reasons = {topic: dead_letter_failure(alice, topic, caplog) for topic in (bob.orders, "bob.nobodys")}
        assert len({reason.replace(topic, "TOPIC") for topic, reason in reasons.items()}) == 1
        assert {topic: kafka_log_4_3_1.offsets(topic) for topic in ends} == ends
        # Bob has noticed nothing: no response, no row, no lock is different.
        assert forged_responses(bob) == {}
        for message in held:
            consumer.acknowledge(message)
        assert not [error for error in consumer.commit_sync(DEADLINE_S).values() if error is not None]
    rows = bob.site.rows()
    assert "mallory" not in json.dumps([row.model_dump(mode="json") for row in rows])
    causes = {entry.cause for row in rows for entry in row.transitions}
    assert causes <= {Cause.ACQUIRE, Cause.ACCEPT, Cause.RELEASE, Cause.UNREAD}
    assert verify(rows, BROKER).findings == []
    assert {group.group_id for group in bob.admin.list_groups()} == {bob.group_id}
    assert all(group.group_id.startswith("alice.") for group in alice.admin.list_groups())


def anonymous(body: dict[str, Any], names: Sequence[str]) -> str:
    """A response without the names that its request gave."""
    text = json.dumps(body)
    for name in names:
        text = text.replace(name, "NAME")
    return text


def dead_letter_failure(alice: Domain, topic: str, caplog: pytest.LogCaptureFixture) -> str:
    """The reason why a group of alice's cannot write its dead-letter records into a topic."""
    group_id = f"alice.dead-{topic.partition('.')[2]}"
    config = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": topic}
    alice.admin.alter_group_config(group_id, config)
    with alice.consumer(group_id, share_acknowledgement_mode="explicit", max_poll_records=1) as consumer:
        (message, *_) = alice.site.poll(consumer, 1)
        consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync(DEADLINE_S)
        mark = f"event=dead_letters_failed group={group_id} "
        return eventually(
            lambda: next((str(r.msg).partition(mark)[2] for r in caplog.records if mark in str(r.msg)), ""),
            f"the records for {topic} are refused",
        )


def test_an_announcement_ends_the_processor_of_its_own_domain_only(
    kafka_4_3_1: KafkaBroker, kafka_log_4_3_1: KafkaLog, tmp_path: Path
) -> None:
    with started_domains(("carol", "dave"), kafka_4_3_1, kafka_log_4_3_1, tmp_path) as (carol, dave):
        carol.send(envelope(900, ApiKey.PROCESSOR_STARTED, "", "", leader_epoch=1_000_000, reply_partition=-1))
        with pytest.raises(FencedProcessorError):
            carol.site.running_processor().await_failure()
        with dave.consumer() as consumer:
            assert len(dave.site.poll(consumer, 40)) == 40
