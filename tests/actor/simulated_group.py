"""A processor for one group, in memory: request log, clock, record log and both actors.

The actors live between two batches; after a restart they begin with what the rows of the state table add up to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sharegroup.actor.context import ActorContext, LoggedRequest
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.decoding import decoded_message
from sharegroup.actor.effects import (
    DeadLetters,
    DropDeadLetters,
    Effect,
    Persist,
    Respond,
    Send,
    Undecodable,
    Wake,
    WatchLog,
    WatchTopics,
    WriteDeadLetters,
)
from sharegroup.actor.mailbox import ActorFailedError, GroupActors
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.processor.groups import leader_of
from sharegroup.processor.watches.topic_view import log_offsets_messages
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_messages import (
    AlterGroupConfigRequest,
    ResumeShareGroupRequest,
)
from sharegroup.protocol.internal_messages import (
    UNINITIALIZED_OFFSET,
    DlqWritten,
    LogOffsets,
    PartitionLogOffsets,
    Tick,
    TopicLogOffsets,
    WrittenDeadLetters,
)
from sharegroup.protocol.messages import Message, RequestEnvelope, ResponseEnvelope, request
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedGroup, fold

GROUP_ID = "group-1"
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
ADMIN_REPLY_PARTITION = 99


@dataclass(frozen=True, slots=True)
class LogPartition:
    """Offsets of one partition of the record log; `young` is what a reset by duration finds."""

    start: int = 0
    end: int = 0
    stable: int | None = None
    young: int = 0

    @property
    def last_stable_offset(self) -> int:
        return self.end if self.stable is None else self.stable

    def readable_end(self, isolation_level: IsolationLevel) -> int:
        return self.last_stable_offset if isolation_level is IsolationLevel.READ_COMMITTED else self.end


@dataclass(frozen=True, slots=True)
class LoggedBytes:
    """A record of the request log."""

    value: bytes
    time_ms: int


@dataclass
class Outcome:
    """The effects of one or more batches."""

    rows: list[StateRow] = field(default_factory=list)
    responses: list[ResponseEnvelope] = field(default_factory=list)
    undecodable: list[Undecodable] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: the messages that it applied, when it ran, and what it did."""

    offsets: range
    cut_ms: int
    outcome: Outcome


class Group:
    """One group's processor.

    Args:
        broker: configuration.
        topics: topic name → (topic id, partitions).
    """

    def __init__(
        self,
        broker: BrokerConfig | None = None,
        group_id: str = GROUP_ID,
        topics: Mapping[str, tuple[str, Sequence[LogPartition]]] | None = None,
    ) -> None:
        self.group_id = group_id
        self.context = ActorContext(group_id, request_partition=0, leader_epoch=1, broker=broker or BrokerConfig())
        self.now_ms = START_MS
        self.topics: dict[str, tuple[str, list[LogPartition]]] = {
            name: (topic_id, list(partitions)) for name, (topic_id, partitions) in (topics or {}).items()
        }
        self.log: list[LoggedBytes] = []
        self._begin(FoldedGroup(group_id))
        self._last_time_ms = 0
        self.rows: list[StateRow] = []
        self.responses: list[ResponseEnvelope] = []
        self.wakes: dict[ActorRole, int] = {}
        self.topic_watch: WatchTopics | None = None
        self.log_watch: dict[tuple[str, str, int], int] = {}
        """(topic, topic id, partition) → offset above which the leader is to be woken."""
        self.watched_level = IsolationLevel.READ_UNCOMMITTED
        self.dead_letters: list[WriteDeadLetters] = []
        """The dead-letter records that the leader requested and did not drop, in order."""
        self.after_batch: list[Callable[[Batch], None]] = []
        """Called with each batch once it is done."""
        self._applied = 0
        self._correlation_ids = itertools.count(1_000_000)
        self._lookups = itertools.count(1)

    # The request log.

    @property
    def pending_count(self) -> int:
        """Messages that no batch has applied yet."""
        return len(self.log) - self._applied

    def append(self, envelope: RequestEnvelope | bytes) -> int:
        """Append to the request log now; returns the offset."""
        value = envelope if isinstance(envelope, bytes) else envelope.encoded()
        self.log.append(LoggedBytes(value, self.now_ms))
        return len(self.log) - 1

    def tell(self, api_key: ApiKey, body: Message) -> int:
        """Append a message that asks for no response, as the processor does."""
        return self.append(request(api_key, self.group_id, body, leader_epoch=self.context.leader_epoch))

    def append_tick(self) -> None:
        self.tell(ApiKey.TICK, Tick())

    def run_batch(self, cut_ms: int | None = None, count: int | None = None) -> Outcome:
        """Apply what is pending in one batch.

        Args:
            cut_ms: the batch's time; None is now.
            count: at most this many messages; None is all.
        """
        end = len(self.log) if count is None else min(len(self.log), self._applied + count)
        offsets = range(self._applied, end)
        self._applied = end
        outcome = Outcome()
        cut_ms = self.now_ms if cut_ms is None else cut_ms
        effects = self.effects_of(offsets, cut_ms)
        for effect in effects:
            self._perform(effect, outcome)
        self.rows += outcome.rows
        self.responses += outcome.responses
        self._append_internal_messages()
        for callback in self.after_batch:
            callback(Batch(offsets, cut_ms, outcome))
        return outcome

    def effects_of(self, offsets: Iterable[int], cut_ms: int) -> list[Effect]:
        """Let both actors apply messages in one cut."""
        messages: list[LoggedRequest] = []
        effects: list[Effect] = []
        for offset in offsets:
            self._last_time_ms = max(self._last_time_ms, self.log[offset].time_ms)
            message = decoded_message(self.log[offset].value, offset, self._last_time_ms, self.context.leader_epoch)
            if isinstance(message, LoggedRequest):
                messages.append(message)
            else:
                effects.append(message)
        return effects + self._applied_by_actors(messages, cut_ms)

    def _applied_by_actors(self, messages: Sequence[LoggedRequest], cut_ms: int) -> list[Effect]:
        """Apply messages in one cut; a group that fails is rebuilt from its rows, as the processor does."""
        bad: tuple[int, ActorRole, str] | None = None
        while True:
            try:
                for index, message in enumerate(messages):
                    if bad is not None and index == bad[0]:
                        self.actors.quarantine(bad[1], message, bad[2])
                    else:
                        self.actors.receive(message)
                return self.actors.finish(cut_ms)
            except ActorFailedError as failed:
                index = 0 if failed.message is None else messages.index(failed.message)
                bad = (index, failed.role, repr(failed.__cause__))
                self._begin(fold(self.rows).groups.get(self.group_id, FoldedGroup(self.group_id)))

    def settle(self) -> Outcome:
        """Run batches until nothing is pending; what they did together."""
        together = Outcome()
        for _ in range(50):
            if not self.pending_count:
                return together
            outcome = self.run_batch()
            together.rows += outcome.rows
            together.responses += outcome.responses
            together.undecodable += outcome.undecodable
        raise AssertionError(f"the group does not settle: {self.log[-1]}")

    def advance(self, duration_ms: int) -> None:
        """Let time pass; the ticks that the actors asked for come when they are due."""
        until_ms = self.now_ms + duration_ms
        while self.wakes and min(self.wakes.values()) <= until_ms:
            self.now_ms = max(self.now_ms, min(self.wakes.values()))
            self.wakes = {role: at_ms for role, at_ms in self.wakes.items() if at_ms > self.now_ms}
            self.append_tick()
            self.settle()
        self.now_ms = until_ms

    def restart(self) -> None:
        """Lose the actors; a processor of the next epoch begins with what the state table says."""
        self.context = replace(self.context, leader_epoch=self.context.leader_epoch + 1)
        removed = [record["epoch"] for record in self._metadata_records() if record["type"] == "ShareGroupRemoved"]
        self.context = replace(self.context, group_epoch_floor=max(removed, default=0))
        self._begin(fold(self.rows).groups.get(self.group_id, FoldedGroup(self.group_id)))
        self.wakes, self.topic_watch, self.log_watch = {}, None, {}
        self.append_tick()

    def _begin(self, folded: FoldedGroup) -> None:
        """Make the actors again, from the state that the rows fold to."""
        self.coordinator = Coordinator(self.context, folded.metadata)
        self.leader = leader_of(self.context, folded)
        failure = next(iter(folded.failures.values()), "")
        self.actors = GroupActors(self.context, self.coordinator, self.leader, failure)

    def _metadata_records(self) -> list[dict[str, Any]]:
        return [record for row in self.rows_of(RecordType.GROUP_METADATA) for record in row.payload["records"]]

    def drop_pending(self) -> None:
        """Lose the messages that no batch has applied yet, as if the driver had died before it sent them."""
        del self.log[self._applied :]

    # The record log.

    def create_topic(self, topic: str, topic_id: str, partitions: Sequence[LogPartition]) -> None:
        """Create a topic, or another one of the same name."""
        self.topics[topic] = (topic_id, list(partitions))
        self._append_internal_messages()

    def delete_topic(self, topic: str) -> None:
        del self.topics[topic]
        self._append_internal_messages()

    def grow(self, topic: str, partition: int, count: int) -> None:
        """Append records to the record log."""
        offsets = self.topics[topic][1][partition]
        self.set_offsets(topic, partition, replace(offsets, end=offsets.end + count))

    def set_offsets(self, topic: str, partition: int, offsets: LogPartition) -> None:
        self.topics[topic][1][partition] = offsets
        self._append_internal_messages()

    def tell_offsets(self, topic: str) -> None:
        """Append what the record log is, asked or not."""
        self.tell(ApiKey.LOG_OFFSETS, LogOffsets(topics=[self._topic_offsets(topic)]))

    # Administration.

    def alter_config(self, delete: Sequence[str] = (), **values: str) -> int:
        """Set `share_record_lock_duration_ms="20000"` and so on; returns the error code."""
        body = AlterGroupConfigRequest(
            set={name.replace("_", "."): value for name, value in values.items()}, delete=list(delete)
        )
        return self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, body)

    def resume(self) -> int:
        return self.ask(ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest())

    def ask(self, api_key: ApiKey, body: Message) -> int:
        """Send an administrator's request and wait for the error code of the response."""
        return int(self.response_to(api_key, body).get("error_code", 0))

    def response_to(self, api_key: ApiKey, body: Message) -> dict[str, Any]:
        """Send an administrator's request and wait for the body of the response."""
        correlation_id = self.send_as_admin(api_key, body)
        self.settle()
        (response,) = self.responses_to_admin(correlation_id)
        return response

    def send_as_admin(self, api_key: ApiKey, body: Message) -> int:
        """Append an administrator's request; returns its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.append(
            request(
                api_key,
                self.group_id,
                body,
                member_id="admin",
                correlation_id=correlation_id,
                reply_partition=ADMIN_REPLY_PARTITION,
            )
        )
        return correlation_id

    def responses_to_admin(self, correlation_id: int) -> list[dict[str, Any]]:
        """The bodies of the responses to an administrator's request so far."""
        return [response.body for response in self.responses if response.correlation_id == correlation_id]

    # The dead-letter queue.

    def write_dead_letters(self) -> None:
        """Tell the leader that all dead letters that it asked for are written, as the processor's writer does."""
        ranges = [written(dead_letters) for effect in self.dead_letters for dead_letters in effect.dead_letters]
        self.dead_letters = []
        if ranges:
            self.tell(ApiKey.DLQ_WRITTEN, DlqWritten(ranges=ranges))

    # What is inside.

    def rows_of(self, *record_types: RecordType) -> list[StateRow]:
        return [row for row in self.rows if row.record_type in record_types]

    def _perform(self, effect: Effect, outcome: Outcome) -> None:
        match effect:
            case Persist():
                outcome.rows.append(effect.row)
            case Respond():
                assert effect.address.partition >= 0, effect
                outcome.responses.append(effect.response)
            case Send():
                self.append(effect.request.model_copy(update={"leader_epoch": self.context.leader_epoch}))
            case Wake(at_ms=None):
                self.wakes.pop(effect.role, None)
            case Wake(at_ms=int(at_ms)):
                self.wakes[effect.role] = at_ms
            case WatchTopics():
                self.topic_watch = replace(effect, topics=dict(effect.topics))
            case WatchLog():
                assert not effect.forgotten & effect.above_offset.keys()
                self.log_watch = {key: at for key, at in self.log_watch.items() if key not in effect.forgotten}
                self.log_watch.update(effect.above_offset)
                self.watched_level = effect.isolation_level
            case WriteDeadLetters():
                self.dead_letters.append(effect)
            case DropDeadLetters():
                self.dead_letters.clear()
            case Undecodable():
                outcome.undecodable.append(effect)

    def _append_internal_messages(self) -> None:
        """Report what is watched, each once, as the driver does."""
        news = [*self._grown(), *self._changed()]
        for envelope in log_offsets_messages([self.group_id], self.context.leader_epoch, news):
            self.append(envelope)

    def _grown(self) -> Iterator[TopicLogOffsets]:
        watched = self.log_watch
        for (topic, topic_id, partition), above in list(watched.items()):
            present_id, partitions = self.topics.get(topic, ("", []))
            if present_id != topic_id or partition >= len(partitions):
                continue
            if partitions[partition].readable_end(self.watched_level) > above:
                del watched[topic, topic_id, partition]
                yield self._topic_offsets(topic, [partition])

    def _changed(self) -> Iterator[TopicLogOffsets]:
        watched = self.topic_watch.topics if self.topic_watch else {}
        for topic, known in list(watched.items()):
            topic_id, partitions = self.topics.get(topic, ("", []))
            if (topic_id, len(partitions)) != known:
                watched[topic] = (topic_id, len(partitions))
                yield self._topic_offsets(topic, tells_young=True)

    def _topic_offsets(
        self, topic: str, indexes: Iterable[int] | None = None, tells_young: bool = False
    ) -> TopicLogOffsets:
        topic_id, partitions = self.topics.get(topic, ("", []))
        resets = tells_young and self.topic_watch is not None and self.topic_watch.reset is not None
        return TopicLogOffsets(
            topic=topic,
            topic_id=topic_id,
            partition_count=len(partitions),
            sequence=next(self._lookups),
            partitions=[
                PartitionLogOffsets(
                    partition_index=index,
                    start_offset=partitions[index].start,
                    end_offset=partitions[index].end,
                    last_stable_offset=partitions[index].last_stable_offset,
                    reset_offset=partitions[index].young if resets else UNINITIALIZED_OFFSET,
                )
                for index in (range(len(partitions)) if indexes is None else indexes)
            ],
        )


def written(dead_letters: DeadLetters) -> WrittenDeadLetters:
    """The range that the writer reports when it has written dead letters."""
    return WrittenDeadLetters(
        topic_id=dead_letters.topic_id,
        partition_index=dead_letters.partition,
        first_offset=dead_letters.first_offset,
        last_offset=dead_letters.last_offset,
        state_epoch=dead_letters.state_epoch,
    )


def group_with(
    *partitions: LogPartition | int, broker: BrokerConfig | None = None, topic: str = "orders", earliest: bool = True
) -> Group:
    """A group and a topic `orders` with the id `orders-id`; a partition given as a number has that many records."""
    offsets = [LogPartition(end=offset) if isinstance(offset, int) else offset for offset in partitions]
    group = Group(broker, topics={topic: (f"{topic}-id", offsets)})
    if earliest:
        assert group.alter_config(share_auto_offset_reset="earliest") == 0
    return group
