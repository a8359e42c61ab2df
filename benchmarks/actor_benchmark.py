"""What a micro-batch costs an actor: decode the state, apply the messages, encode the state.

    python benchmarks/actor_benchmark.py

Prints milliseconds of processor time of each kind of batch at a quarter and at the whole of its size, and how many
times as long the whole takes; 4 is linear. Each figure is the best of three.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sharegroup.actor.context import ActorContext, LoggedRequest
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.effects import Effect
from sharegroup.actor.leader import Leader
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.mailbox import ActorState, run_batch
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.group_coordinator import GroupCoordinator
from sharegroup.coordinator.group_state import GroupState
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.core.runs import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatRequest
from sharegroup.protocol.internal_messages import LogOffsets, PartitionLogOffsets, Tick, TopicLogOffsets
from sharegroup.protocol.messages import Message, RequestEnvelope, request
from sharegroup.protocol.share_fetch import (
    AcknowledgementRange,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)

GROUP_ID, TOPIC, TOPIC_ID = "group-1", "orders", "orders-id"
NOW_MS = 1_767_225_600_000
MEMBERS, PARTITIONS, RUNS = 1_000, 100, 10_000
REPEATS = 3
CONTEXT = ActorContext(
    GROUP_ID,
    request_partition=0,
    leader_epoch=1,
    broker=BrokerConfig(
        group_share_max_size=1_000,
        group_share_max_partition_max_record_locks=1_000_000,
        group_share_partition_max_record_locks=10_000,
    ),
)

Prepared = tuple[ActorRole, ActorState, list[RequestEnvelope]]
"""An actor, its state, and the batch to measure."""


def applied(
    role: ActorRole, state: ActorState, envelopes: Sequence[RequestEnvelope]
) -> tuple[ActorState, list[Effect]]:
    """The state and the effects after a batch."""
    messages = [LoggedRequest(envelope, offset, NOW_MS) for offset, envelope in enumerate(envelopes)]
    return run_batch(role, CONTEXT, state, messages, NOW_MS)


def from_member(index: int, api_key: ApiKey, body: Message, correlation_id: int = 1) -> RequestEnvelope:
    """A request of a member."""
    return request(
        api_key, GROUP_ID, body, member_id=f"member-{index:05}", correlation_id=correlation_id, reply_partition=0
    )


def joins(size: int) -> list[RequestEnvelope]:
    """Members that join."""
    body = ShareGroupHeartbeatRequest(member_epoch=0, subscribed_topic_names=[TOPIC])
    return [from_member(index, ApiKey.SHARE_GROUP_HEARTBEAT, body) for index in range(size)]


def coordinator() -> ActorState:
    """A coordinator that knows an initialised topic, and no member."""
    group = GroupCoordinator(GroupState(), CONTEXT.broker)
    group.heartbeat("first", "", ShareGroupHeartbeatRequest(member_epoch=0, subscribed_topic_names=[TOPIC]), NOW_MS)
    group.topic_seen(TOPIC, TOPIC_ID, PARTITIONS)
    group.partitions_initialized(TOPIC_ID, range(PARTITIONS), group.state.group_epoch)
    group.heartbeat("first", "", ShareGroupHeartbeatRequest(member_epoch=-1), NOW_MS)
    return ActorState(Coordinator(CONTEXT, group).to_plain())


def leader(runs: Sequence[Run] = (), records: int = 0) -> ActorState:
    """A leader of all partitions, each with these runs in flight and so many records after them."""
    end = (runs[-1].last_offset + 1 if runs else 0) + records
    partitions = [
        LedPartition(TOPIC, TOPIC_ID, index, SharePartition(0, runs), SnapshotEpochs(0, 0))
        for index in range(1 if runs else PARTITIONS)
    ]
    told = [
        PartitionLogOffsets(partition_index=led.partition, start_offset=0, end_offset=end, last_stable_offset=end)
        for led in partitions
    ]
    offsets = LogOffsets(topics=[TopicLogOffsets(topic=TOPIC, topic_id=TOPIC_ID, partitions=told)])
    state = ActorState(Leader(CONTEXT, {}, partitions).to_plain())
    return applied(ActorRole.LEADER, state, [request(ApiKey.LOG_OFFSETS, GROUP_ID, offsets)])[0]


def fetch(index: int) -> RequestEnvelope:
    """A fetch that opens a session with one partition of many."""
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(partition_index=index % PARTITIONS)])
    body = ShareFetchRequest(share_session_epoch=0, max_wait_ms=60_000, topics=[topic])
    return from_member(index, ApiKey.SHARE_FETCH, body)


def acceptance(index: int, first: int, last: int, epoch: int = 1, step: int = 0) -> RequestEnvelope:
    """Accept a range, or every other record of it."""
    ranges = range(first, last + 1, step) if step else [first]
    batches = [
        AcknowledgementRange(
            first_offset=offset, last_offset=offset if step else last, acknowledge_types=[AcknowledgeType.ACCEPT]
        )
        for offset in ranges
    ]
    partition = FetchPartition(partition_index=index % PARTITIONS, acknowledgement_batches=batches)
    topics = [FetchTopic(topic_id=TOPIC_ID, partitions=[partition])]
    body = ShareAcknowledgeRequest(share_session_epoch=epoch, topics=topics)
    return from_member(index, ApiKey.SHARE_ACKNOWLEDGE, body, correlation_id=2)


def members_join(size: int) -> Prepared:
    return ActorRole.COORDINATOR, coordinator(), joins(size)


def members_beat(size: int) -> Prepared:
    joined, _ = applied(ActorRole.COORDINATOR, coordinator(), joins(size))
    return ActorRole.COORDINATOR, joined, joins(size)


def fetches_are_parked(size: int) -> Prepared:
    return ActorRole.LEADER, leader(), [fetch(index) for index in range(size)]


def tick_among_parked_fetches(size: int) -> Prepared:
    parked, _ = applied(ActorRole.LEADER, leader(), [fetch(index) for index in range(size)])
    return ActorRole.LEADER, parked, [request(ApiKey.TICK, GROUP_ID, Tick())]


def fetches_acquire(size: int) -> Prepared:
    return ActorRole.LEADER, leader(records=size * 10), [fetch(index) for index in range(size)]


def members_accept(size: int) -> Prepared:
    count = size // PARTITIONS
    acquired, _ = applied(ActorRole.LEADER, leader(records=10 * count), [fetch(index) for index in range(size)])
    places = [(index, 10 * (index // PARTITIONS)) for index in range(size)]
    return ActorRole.LEADER, acquired, [acceptance(index, first, first + 9) for index, first in places]


def one_acceptance_among_runs(size: int) -> Prepared:
    runs = [
        Run(2 * index, 2 * index + 1, RecordState.ACQUIRED, 1 + index % 2, "member-00000", NOW_MS + 1_000)
        for index in range(size)
    ]
    opened, _ = applied(ActorRole.LEADER, leader(runs), [fetch(0)])
    return ActorRole.LEADER, opened, [acceptance(0, size, size + 1)]


def acceptances_that_split_a_run(size: int) -> Prepared:
    runs = [Run(0, 2 * size - 1, RecordState.ACQUIRED, 1, "member-00000", NOW_MS + 1_000)]
    opened, _ = applied(ActorRole.LEADER, leader(runs), [fetch(0)])
    return ActorRole.LEADER, opened, [acceptance(0, 0, 2 * size - 1, step=2)]


CASES: list[tuple[str, Callable[[int], Prepared], int]] = [
    ("members join", members_join, MEMBERS),
    ("members send heartbeats", members_beat, MEMBERS),
    ("fetches are parked", fetches_are_parked, MEMBERS),
    ("one tick, so many parked fetches", tick_among_parked_fetches, MEMBERS),
    ("fetches acquire", fetches_acquire, MEMBERS),
    ("members accept a range each", members_accept, MEMBERS),
    ("one acceptance, so many runs", one_acceptance_among_runs, RUNS),
    ("so many acceptances split a run", acceptances_that_split_a_run, RUNS),
]


def batch_ms(prepared: Prepared) -> tuple[float, int]:
    """Milliseconds that the batch takes, and the size of the state after it in bytes."""
    role, state, envelopes = prepared
    encoded = state.encoded()
    best, size = float("inf"), 0
    for _ in range(REPEATS):
        started = time.process_time()
        after, _ = applied(role, ActorState.decoded(encoded), envelopes)
        size = len(after.encoded())
        best = min(best, (time.process_time() - started) * 1_000)
        assert not after.failure, after.failure
    return best, size


def main() -> None:
    print(f"{PARTITIONS} partitions, best of {REPEATS}")
    print(f"{'batch':<36}{'size':>8}{'ms at 1/4':>12}{'ms':>10}{'ratio':>8}{'state KB':>10}")
    for name, prepare, size in CASES:
        quarter, _ = batch_ms(prepare(size // 4))
        whole, state_size = batch_ms(prepare(size))
        print(f"{name:<36}{size:>8,}{quarter:>12.1f}{whole:>10.1f}{whole / quarter:>8.1f}{state_size / 1_000:>10,.0f}")


if __name__ == "__main__":
    main()
