"""Whatever stands in the request log: nothing escapes, nobody is quarantined, whoever can be answered is answered."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.mailbox import ActorState, run_batch
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import ApiError
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.messages import RequestEnvelope, decoded_request
from tests.actor.group_harness import GROUP_ID, START_MS, Group, group_with, joined

ANSWERED_KEYS = {
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.RESUME_SHARE_GROUP,
}

INTEGERS = st.one_of(
    st.integers(-2, 12),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, -(2**31), -(2**63), -(2**63) - 1, -(2**64)]),
)
TEXTS = st.one_of(
    st.sampled_from(["orders", "orders-id", "other-id", "anna", "ben", "stranger", "", "share.session.timeout.ms"]),
    st.text(max_size=5),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.floats(), INTEGERS, TEXTS)
NAMES = st.sampled_from(
    [
        "topics",
        "topic",
        "topic_id",
        "partitions",
        "partition_index",
        "partition_count",
        "start_offset",
        "end_offset",
        "member_epoch",
        "share_session_epoch",
        "overrides",
        "set",
        "delete",
    ]
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=6,
)


@st.composite
def fields(draw: st.DrawFn, /, **strategies: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Objects of the right shape; now and then one field is missing, or is anything at all."""
    found = {name: draw(strategy) for name, strategy in strategies.items()}
    spoilt = draw(st.none() | st.none() | st.sampled_from(sorted(found)))
    if spoilt is not None:
        del found[spoilt]
        if draw(st.booleans()):
            found[spoilt] = draw(SCALARS)
    return found


EPOCHS = st.integers(-1, 4) | INTEGERS
TOPIC_IDS = st.sampled_from(["orders-id", "other-id"])
RANGES = fields(
    first_offset=INTEGERS,
    last_offset=INTEGERS,
    acknowledge_types=st.lists(st.sampled_from([0, 1, 2, 3, 4, 100, 5, -1]), max_size=4),
    reason=TEXTS,
)
FETCH_TOPICS = st.lists(
    fields(
        topic_id=TOPIC_IDS,
        partitions=st.lists(
            fields(partition_index=st.integers(0, 2) | INTEGERS, acknowledgement_batches=st.lists(RANGES, max_size=3)),
            max_size=3,
        ),
    ),
    max_size=2,
)
STATE_TOPICS = st.lists(
    fields(
        topic_id=TOPIC_IDS,
        topic=TEXTS,
        partitions=st.lists(fields(partition_index=INTEGERS, start_offset=INTEGERS), max_size=3),
    ),
    max_size=2,
)
LOG_TOPICS = st.lists(
    fields(
        topic=st.sampled_from(["orders", "other"]),
        topic_id=TOPIC_IDS,
        partition_count=INTEGERS,
        partitions=st.lists(
            fields(
                partition_index=st.integers(0, 2) | INTEGERS,
                start_offset=INTEGERS,
                end_offset=INTEGERS,
                last_stable_offset=INTEGERS,
                reset_offset=INTEGERS,
            ),
            max_size=2,
        ),
    ),
    max_size=2,
)
CONFIG = st.dictionaries(
    st.sampled_from(["share.session.timeout.ms", "share.record.lock.duration.ms", "share.auto.offset.reset", "no.key"]),
    st.sampled_from(["45001", "20000", "earliest", "by_duration:P1D", "-1", "99999999999999999999", ""]) | SCALARS,
    max_size=2,
)
BODIES: dict[int, st.SearchStrategy[Any]] = {
    ApiKey.INCREMENTAL_ALTER_CONFIGS: fields(set=CONFIG, delete=st.lists(TEXTS, max_size=2)),
    ApiKey.SHARE_GROUP_HEARTBEAT: fields(
        member_epoch=EPOCHS, rack_id=TEXTS, subscribed_topic_names=st.lists(TEXTS, max_size=3)
    ),
    ApiKey.SHARE_FETCH: fields(
        share_session_epoch=EPOCHS,
        max_wait_ms=INTEGERS,
        max_records=INTEGERS,
        batch_size=INTEGERS,
        acquire_mode=st.sampled_from(["batch_optimized", "record_limit", "greedy"]),
        topics=FETCH_TOPICS,
        forgotten_topics_data=st.lists(
            fields(topic_id=TOPIC_IDS, partitions=st.lists(INTEGERS, max_size=2)), max_size=2
        ),
    ),
    ApiKey.SHARE_ACKNOWLEDGE: fields(share_session_epoch=EPOCHS, topics=FETCH_TOPICS),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: fields(state_epoch=INTEGERS, topics=STATE_TOPICS),
    ApiKey.LOG_OFFSETS: fields(topics=LOG_TOPICS),
    ApiKey.TICK: st.just({}),
    ApiKey.SHARE_GROUP_STATE_INITIALIZED: fields(topics=STATE_TOPICS),
    ApiKey.RESUME_SHARE_GROUP: st.just({}),
    ApiKey.SHARE_GROUP_CONFIG_CHANGED: fields(overrides=CONFIG),
}


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """A message that is right but for its body, and now and then in other places as well."""
    api_key = draw(st.sampled_from(sorted(BODIES)))
    envelope = {
        "v": 1,
        "api_key": int(api_key),
        "api_version": 1,
        "correlation_id": draw(st.integers(0, 5)),
        "client_id": "",
        "group_id": GROUP_ID,
        "member_id": draw(st.sampled_from(["anna", "ben", "stranger"])),
        "reply_partition": draw(st.sampled_from([-1, 0, 3])),
        "body": draw(st.one_of(BODIES[api_key], BODIES[api_key], BODIES[api_key], ANYTHING)),
    }
    if draw(st.integers(0, 4)) == 0:
        envelope[draw(st.sampled_from(sorted(envelope)))] = draw(ANYTHING | INTEGERS)
    return envelope


def bytes_of(envelope: dict[str, Any]) -> bytes:
    return json.dumps(envelope).encode()


def working_group() -> Group:
    """Two members with sessions, one of which holds records, and one parked fetch."""
    group = group_with(30, 5)
    anna, ben = joined(group, "anna", "ben")
    anna.fetch([("orders-id", 0)], max_records=10)
    anna.acknowledge({("orders-id", 0): [(3, 4, AcknowledgeType.RELEASE)]})
    ben.fetch([("orders-id", 1)])
    ben.send_fetch([("orders-id", 1)], max_wait_ms=100_000)
    group.settle()
    return group


def is_answered(group: Group, envelope: RequestEnvelope) -> bool:
    """Whether a request has its answer, or is a fetch that waits."""
    address = (envelope.member_id, envelope.correlation_id)
    waiting = [session.pending.envelope for session in group.leader.sessions if session.pending]
    return any((r.member_id, r.correlation_id) == address for r in group.responses) or any(
        (parked.member_id, parked.correlation_id) == address for parked in waiting
    )


@given(st.lists(envelopes() | ANYTHING, max_size=6), st.booleans())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_message_is_survived_and_requests_are_answered(messages: list[Any], together: bool) -> None:
    group = working_group()
    group.responses.clear()
    for message in messages:
        group.append(bytes_of(message))
        if not together:
            group.settle()
        group.now_ms += 20_000
    group.settle()
    for state in group.states.values():
        assert ActorState.decoded(state).failure == ""
    for message in messages:
        try:
            envelope = decoded_request(bytes_of(message))
        except ApiError:
            continue
        if envelope.api_key in ANSWERED_KEYS and envelope.reply_partition >= 0 and envelope.group_id == GROUP_ID:
            assert is_answered(group, envelope), message
    group.advance(100_000)
    assert group.resume() == 0


@given(st.lists(st.binary(max_size=30) | envelopes().map(bytes_of), max_size=4))
@settings(deadline=None)
def test_any_bytes_are_survived(values: list[bytes]) -> None:
    group = working_group()
    for value in values:
        group.append(value)
    group.settle()
    for state in group.states.values():
        assert ActorState.decoded(state).failure == ""


@given(st.lists(envelopes(), max_size=4), st.sampled_from(ActorRole))
@settings(deadline=None)
def test_a_message_for_the_other_actor_does_no_harm(messages: list[dict[str, Any]], role: ActorRole) -> None:
    group = working_group()
    logged = []
    for message in messages:
        try:
            logged.append(LoggedRequest(decoded_request(bytes_of(message)), 1_000, START_MS))
        except ApiError:
            continue
    state, _ = run_batch(role, group.context, group.state(role), logged, START_MS)
    assert ActorState.decoded(state.encoded()).failure == ""
