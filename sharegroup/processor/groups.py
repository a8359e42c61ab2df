"""All live groups of a processor: a cut goes in, final rows, answers and internal messages come out.

An unexpected exception in a group's actors, up to the point where its output is final bytes, concerns that group only:
it is rebuilt from the state table, aside, while its messages queue and all other groups go on (`Rebuild`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sharegroup.actor.context import ActorContext, LoggedRequest
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.decoding import decoded_message, refusal
from sharegroup.actor.effects import Effect, Persist, Respond, Send
from sharegroup.actor.leader import Leader
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.mailbox import ActorFailedError, GroupActors
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.errors import CoordinatorLoadInProgressError, FencedProcessorError, InvalidRequestError
from sharegroup.event_log import Event
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import LogRecord
from sharegroup.processor.answer_records import AnswerRecords
from sharegroup.processor.commit import AppliedGroup
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_records import ShareGroupRemoved, group_record
from sharegroup.protocol.marker import OutboxAnswer
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedGroup, FoldedPartition, FoldedState, fold

logger = logging.getLogger("sharegroup.processor")

MAX_QUEUED_MESSAGES = 10_000
"""Messages of a group that wait while it is rebuilt; those beyond are refused."""


@dataclass(frozen=True, slots=True)
class TakenCut:
    """Messages of one request partition that are applied together.

    Attributes:
        partition: request partition.
        records: the messages, in offset order.
        times_ms: their append times, made non-decreasing; epoch ms.
        end_offset: offset after the last of them.
        cut_ms: time of the cut; epoch ms.
    """

    partition: int
    records: Sequence[LogRecord]
    times_ms: Sequence[int]
    end_offset: int
    cut_ms: int


@dataclass(frozen=True, slots=True)
class GroupOutput:
    """What one group's actors made of their messages in a cut, as final values.

    Attributes:
        applied: the group, and its effects.
        rows: rows for the state table.
        answers: for the response log.
        messages: for the request log: group id and the request envelope in JSON.
        unanswerable_count: answers without a valid address; they are dropped.
    """

    applied: AppliedGroup
    rows: Sequence[StateRow]
    answers: Sequence[OutboxAnswer]
    messages: Sequence[tuple[str, str]]
    unanswerable_count: int = 0


@dataclass
class Rebuild:
    """A group that is being rebuilt.

    Attributes:
        group_id: the group.
        partition: its request partition.
        messages: what is not applied yet, in order: first the messages of the cut that failed.
        bad_index: which of them the group is quarantined from on; None when there is nothing to blame.
        role: the actor that failed.
        reason: why.
        rows: the rows of the group in the state table, once they are read.
    """

    group_id: str
    partition: int
    messages: list[LoggedRequest]
    bad_index: int
    role: ActorRole
    reason: str
    rows: list[StateRow] | None = field(default=None)


class Groups:
    """The live groups.

    Args:
        folded: all groups as the state table has them; their share-partitions belong to this object from now on.
        leader_epoch: epoch of this processor.
        broker: defaults and bounds of all groups.
        answer_records: makes the final answers.
        request_partition_count: partitions of the request log.
        group_epoch_floor: highest group epoch of any removed group.
        poison: request partition and offset of a message that ended processors: its group is quarantined from it on.
        leads_ms: request partition → how far its time is ahead of the stamps at first.
        start_rebuild: starts reading a group's rows, after everything submitted so far is committed; the loop calls
            `finish_rebuild` when they are there.
    """

    def __init__(
        self,
        folded: FoldedState,
        leader_epoch: int,
        broker: BrokerConfig,
        answer_records: AnswerRecords,
        request_partition_count: int,
        group_epoch_floor: int,
        start_rebuild: Callable[[Rebuild], None],
        poison: tuple[int, int] | None = None,
        leads_ms: Mapping[int, int] | None = None,
    ) -> None:
        self.group_epoch_floor = group_epoch_floor
        self._leader_epoch = leader_epoch
        self._broker = broker
        self._answer_records = answer_records
        self._request_partition_count = request_partition_count
        self._start_rebuild = start_rebuild
        self._poison = poison
        self._leads_ms = dict(leads_ms or {})
        self._times_ms: dict[int, int] = {}
        self._rebuilds: dict[str, Rebuild] = {}
        self._groups = {group_id: self._actors_of(group) for group_id, group in folded.groups.items()}

    @property
    def group_count(self) -> int:
        """Number of live groups."""
        return len(self._groups)

    @property
    def unapplied(self) -> dict[str, int]:
        """Group that is being rebuilt → offset of its first message that is not applied."""
        return {group_id: rebuild.messages[0].offset for group_id, rebuild in self._rebuilds.items()}

    def apply(self, cut: TakenCut) -> list[GroupOutput]:
        """Apply a cut.

        Raises:
            FencedProcessorError: a processor of a higher leader epoch has announced itself; nothing of the cut was
                applied.
        """
        messages: dict[str, list[LoggedRequest]] = {}
        refused: list[Effect] = []
        for record, time_ms in zip(cut.records, cut.times_ms, strict=True):
            message = decoded_message(record.value, record.offset, time_ms)
            if not isinstance(message, LoggedRequest):
                refused.append(message)
                continue
            envelope = message.envelope
            if envelope.api_key == ApiKey.PROCESSOR_STARTED:
                self._check_fence(envelope.leader_epoch, record)
                continue
            if partition_for(envelope.group_id, self._request_partition_count) != cut.partition:
                # Order holds within a partition only: what came by another one is not of this group's history.
                text = f"Group {envelope.group_id} is not in partition {cut.partition} of the request log."
                refused.append(refusal(record.value, record.offset, InvalidRequestError(text)))
                continue
            messages.setdefault(envelope.group_id, []).append(self._on_time(message, record.timestamp_ms, cut))
        outputs = [output for item in messages.items() if (output := self._applied(*item, cut)) is not None]
        if refused:
            outputs.append(
                self._final(AppliedGroup("", cut.partition, len(refused), cut.times_ms[0], cut.cut_ms, refused))
            )
        return outputs

    def _on_time(self, message: LoggedRequest, stamp_ms: int, cut: TakenCut) -> LoggedRequest:
        """Return the message at the time of its partition, which may be ahead of the stamps.

        The processor carries the time on where a broker's clock was put back, or runs slower. By stamps alone a Tick
        would find nothing due and ask for the next one at once, and a fetch would be too old when it comes.
        """
        partition, envelope = cut.partition, message.envelope
        if envelope.api_key == ApiKey.TICK and envelope.leader_epoch == self._leader_epoch:
            sent_ms = envelope.body.get("time_ms", 0)
            if isinstance(sent_ms, int):
                self._leads_ms[partition] = max(0, sent_ms - stamp_ms)
        # Whatever a forged Tick says, no message is later than its cut.
        time_ms = max(message.time_ms, min(stamp_ms + self._leads_ms.get(partition, 0), cut.cut_ms))
        time_ms = self._times_ms[partition] = max(time_ms, self._times_ms.get(partition, 0))
        return message if message.time_ms == time_ms else replace(message, time_ms=time_ms)

    def lead_ms(self, partition: int) -> int:
        """Return how far the time of a request partition is ahead of its stamps, by the last Tick."""
        return self._leads_ms.get(partition, 0)

    def finish_rebuild(self, rebuild: Rebuild, cut_ms: int) -> list[GroupOutput]:
        """Put a group back whose rows were read: apply again what came before the bad message, then quarantine it.

        Args:
            rebuild: the group, with its rows.
            cut_ms: time of the cut that its messages are part of; epoch ms.
        """
        del self._rebuilds[rebuild.group_id]
        while True:
            actors = self._rebuilt(rebuild)
            try:
                for index, message in enumerate(rebuild.messages):
                    if index == rebuild.bad_index:
                        actors.quarantine(rebuild.role, message, rebuild.reason)
                    else:
                        actors.receive(message)
                effects = actors.finish(cut_ms)
            except ActorFailedError as failed:
                index = 0 if failed.message is None else rebuild.messages.index(failed.message)
                rebuild.bad_index, rebuild.role = min(index, rebuild.bad_index), failed.role
                rebuild.reason = _reason(failed)
                continue
            break
        self._groups[rebuild.group_id] = actors
        first, count = rebuild.messages[0], len(rebuild.messages)
        output = self._final(AppliedGroup(rebuild.group_id, rebuild.partition, count, first.time_ms, cut_ms, effects))
        self._raise_epoch_floor(output.rows)
        return [output]

    def _applied(self, group_id: str, messages: list[LoggedRequest], cut: TakenCut) -> GroupOutput | None:
        rebuild = self._rebuilds.get(group_id)
        if rebuild is not None:
            return self._queued(rebuild, messages, cut)
        group = self._groups.get(group_id)
        if group is None:
            group = self._actors_of(FoldedGroup(group_id, cut.partition))
            self._groups[group_id] = group
        try:
            for message in messages:
                if self._poison == (cut.partition, message.offset):
                    group.quarantine(ActorRole.LEADER, message, "processors ended while they applied it")
                else:
                    group.receive(message)
            effects = group.finish(cut.cut_ms)
            output = self._final(
                AppliedGroup(group_id, cut.partition, len(messages), messages[0].time_ms, cut.cut_ms, effects)
            )
        except ActorFailedError as failed:
            self._begin_rebuild(group_id, cut.partition, messages, failed)
            return None
        if group.is_empty:
            del self._groups[group_id]
        self._raise_epoch_floor(output.rows)
        return output

    def _begin_rebuild(
        self, group_id: str, partition: int, messages: list[LoggedRequest], failed: ActorFailedError
    ) -> None:
        # A failure at the end of the cut is no single message's: the group stops before the first of them.
        bad_index = 0 if failed.message is None else messages.index(failed.message)
        reason = _reason(failed)
        logger.error(
            Event("group_rebuilding", group=group_id, offset=messages[bad_index].offset, reason=reason),
            exc_info=failed.__cause__,
        )
        del self._groups[group_id]
        rebuild = Rebuild(group_id, partition, messages, bad_index, failed.role, reason)
        self._rebuilds[group_id] = rebuild
        self._start_rebuild(rebuild)

    def _queued(self, rebuild: Rebuild, messages: list[LoggedRequest], cut: TakenCut) -> GroupOutput | None:
        room = MAX_QUEUED_MESSAGES - len(rebuild.messages)
        rebuild.messages += messages[:room]
        error = CoordinatorLoadInProgressError(
            f"Group {rebuild.group_id} is being rebuilt, and {MAX_QUEUED_MESSAGES} messages wait for it.",
            "Try again later.",
        )
        refused = [_refused(message, error) for message in messages[room:] if message.envelope.reply_partition >= 0]
        if not refused:
            return None
        return self._final(
            AppliedGroup(rebuild.group_id, cut.partition, len(refused), cut.times_ms[0], cut.cut_ms, refused)
        )

    def _final(self, applied: AppliedGroup) -> GroupOutput:
        """Return the output as final values; what fails here is the group's failure as well."""
        effects = applied.effects
        try:
            answers = [self._answer_records.outbox_answer(effect) for effect in effects if isinstance(effect, Respond)]
            return GroupOutput(
                applied,
                [effect.row for effect in effects if isinstance(effect, Persist)],
                [answer for answer in answers if answer is not None],
                [
                    (effect.request.group_id, effect.request.model_dump_json(exclude_defaults=True))
                    for effect in effects
                    if isinstance(effect, Send)
                ],
                answers.count(None),
            )
        except Exception as failure:
            raise ActorFailedError(ActorRole.LEADER, None) from failure

    def _rebuilt(self, rebuild: Rebuild) -> GroupActors:
        group = fold(rebuild.rows or ()).groups.get(rebuild.group_id)
        return self._actors_of(group or FoldedGroup(rebuild.group_id, rebuild.partition))

    def _actors_of(self, group: FoldedGroup) -> GroupActors:
        partition = partition_for(group.group_id, self._request_partition_count)
        context = ActorContext(group.group_id, partition, self._leader_epoch, self._broker, self.group_epoch_floor)
        failure = next(iter(group.failures.values()), "")
        return GroupActors(context, Coordinator(context, group.metadata), leader_of(context, group), failure)

    def _raise_epoch_floor(self, rows: Iterable[StateRow]) -> None:
        for row in rows:
            if row.record_type is RecordType.GROUP_METADATA:
                for record in map(group_record, row.payload["records"]):
                    if isinstance(record, ShareGroupRemoved):
                        self.group_epoch_floor = max(self.group_epoch_floor, record.epoch)

    def _check_fence(self, leader_epoch: int, record: LogRecord) -> None:
        if leader_epoch > self._leader_epoch:
            raise FencedProcessorError(
                f"A processor with leader epoch {leader_epoch} has taken over at offset {record.offset} of request "
                f"partition {record.partition}; this one has {self._leader_epoch}.",
                "Stop this processor: another one has taken over.",
            )


def leader_of(context: ActorContext, group: FoldedGroup) -> Leader:
    """Return the leader of a group as its rows leave it: with its locks, without sessions and known offsets."""
    partitions = [_led(partition) for partition in group.partitions.values()]
    return Leader(context, group.metadata.config_overrides, partitions, group.last_requests)


def _led(folded: FoldedPartition) -> LedPartition:
    epochs = SnapshotEpochs(folded.snapshot_epoch, folded.updates_since_snapshot)
    return LedPartition(
        folded.topic, folded.topic_id, folded.partition, folded.share_partition, epochs, rejected=folded.rejected
    )


def _reason(failed: ActorFailedError) -> str:
    return f"{type(failed.__cause__).__name__}: {failed.__cause__}"


def _refused(message: LoggedRequest, error: CoordinatorLoadInProgressError) -> Effect:
    return refusal(message.envelope.encoded(), message.offset, error)
