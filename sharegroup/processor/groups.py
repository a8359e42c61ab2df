"""All live groups of a processor: a cut is applied to them, and returns final rows, responses and internal messages.

An unexpected exception in a group's actors, until its output is final bytes, affects that group only: it is rebuilt
from the state table in the background, while its messages queue and all other groups continue (`Rebuild`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sharegroup.actor.context import ActorContext, LoggedRequest
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.decoding import decoded_message, refusal
from sharegroup.actor.effects import Effect, Persist, Respond, Send
from sharegroup.actor.leader import Leader
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.mailbox import ActorFailedError, GroupActors
from sharegroup.config.broker import BrokerConfig
from sharegroup.errors import ApiError, CoordinatorLoadInProgressError, InvalidRequestError
from sharegroup.event_log import Event
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import LogRecord
from sharegroup.processor.clocks import PartitionClocks
from sharegroup.processor.commit import GroupOutput
from sharegroup.processor.output import ResponseRecords, group_listing
from sharegroup.processor.standby.probe_responses import KnownStandbys
from sharegroup.processor.takeover.beginning import Beginning
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_description import GroupStateName
from sharegroup.protocol.group_records import ShareGroupRemoved
from sharegroup.protocol.marker import OutboxResponse
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedGroup, FoldedPartition, fold

logger = logging.getLogger("sharegroup.processor")

MAX_QUEUED_MESSAGES = 10_000
"""Messages of a group that may queue while it is rebuilt; further ones are refused."""
_REMOVED = ShareGroupRemoved.model_fields["type"].default


@dataclass(frozen=True, slots=True)
class TakenCut:
    """Messages of one request partition that are applied together.

    Attributes:
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


@dataclass
class Rebuild:
    """A group whose actors failed, while it is restored from its rows.

    Attributes:
        messages: messages that are not applied yet, in order, from the messages of the cut that failed on.
        bad: index of each message at which the group is quarantined → the actor that failed, and the reason.
        rows: the rows of the group in the state table, once they have been read.
    """

    group_id: str
    partition: int
    messages: list[LoggedRequest]
    bad: dict[int, tuple[ActorRole, str]] = field(default_factory=dict)
    rows: list[StateRow] | None = field(default=None)

    @property
    def reason(self) -> str:
        """Return the reason of the first failure."""
        return self.bad[min(self.bad)][1]

    def fail(self, failed: ActorFailedError) -> int:
        """Have the group quarantined at one more message, and return its index.

        A failure at the end of a cut has no single cause: the group stops before the first message, then before each
        that would resume it.

        Raises:
            ActorFailedError: no message is left; the actors fail without any.
        """
        if failed.message is not None:
            index = self.messages.index(failed.message)
        else:
            resuming = (i for i, m in enumerate(self.messages) if m.envelope.api_key == ApiKey.RESUME_SHARE_GROUP)
            index = next((i for i in (0, *resuming) if i not in self.bad), -1)
        if index < 0 or index in self.bad:
            raise failed
        self.bad[index] = failed.role, f"{type(failed.__cause__).__name__}: {failed.__cause__}"
        return index


class Groups:
    """The live groups.

    Args:
        beginning: their state, and the term of their processor.
        broker: defaults and bounds of all groups.
        responses: builds the final responses.
    """

    def __init__(
        self, beginning: Beginning, broker: BrokerConfig, responses: ResponseRecords, clocks: PartitionClocks
    ) -> None:
        self.clocks = clocks
        self.group_epoch_floor = beginning.group_epoch_floor
        self.standbys = KnownStandbys(beginning.leader_epoch)
        self._beginning = beginning
        self._leader_epoch = beginning.leader_epoch
        self._served = beginning.served
        self._broker = broker
        self._responses = responses
        self._rebuilds: dict[str, Rebuild] = {}
        self._new_rebuilds: list[Rebuild] = []
        served = self._served.of(beginning.folded)
        self._groups = {group_id: self._actors_of(group) for group_id, group in served.groups.items()}

    @property
    def group_count(self) -> int:
        """Return the number of live groups."""
        return len(self._groups)

    @property
    def unapplied(self) -> dict[str, int]:
        """Return group → offset of its first message that is not applied, for groups that are being rebuilt."""
        return {group_id: rebuild.messages[0].offset for group_id, rebuild in self._rebuilds.items()}

    def take_new_rebuilds(self) -> list[Rebuild]:
        """Return the groups that have failed since the last call.

        Their rows are to be read after all earlier commits; `finish_rebuild` restores each once they have been read.
        """
        new, self._new_rebuilds = self._new_rebuilds, []
        return new

    def apply(self, cut: TakenCut) -> list[GroupOutput]:
        """Apply a cut.

        Raises:
            FencedProcessorError: a processor of a higher leader epoch has announced itself; nothing of the cut was
                applied.
        """
        messages: dict[str, list[LoggedRequest]] = {}
        others: list[Effect] = []
        listings: list[LoggedRequest] = []
        for record, time_ms in zip(cut.records, cut.times_ms, strict=True):
            message = decoded_message(record.value, record.offset, time_ms, self._leader_epoch)
            if not isinstance(message, LoggedRequest):
                others.append(message)
                continue
            envelope = message.envelope
            if envelope.api_key == ApiKey.PROCESSOR_STARTED:
                self._beginning.check_term(envelope, record)
                continue
            if envelope.api_key == ApiKey.LIST_GROUPS:
                listings.append(message)
                continue
            if envelope.api_key == ApiKey.STANDBY_PROBE:
                others.append(self.standbys.respond(message))
                continue
            group_id = envelope.group_id
            of_group = messages.get(group_id)
            if of_group is None:
                if (error := self._refusal_of(group_id, cut.partition)) is not None:
                    others.append(refusal(record.value, record.offset, error, self._leader_epoch))
                    continue
                of_group = messages[group_id] = []
            of_group.append(self._on_time(message, record.timestamp_ms, cut))
        outputs = [output for item in messages.items() if (output := self._applied(*item, cut)) is not None]
        others += [self._listing(message, cut.partition) for message in listings]
        if others:
            outputs.append(self._final("", cut.partition, len(others), cut.times_ms[0], cut.cut_ms, others))
        return outputs

    def _listing(self, message: LoggedRequest, partition: int) -> Effect:
        """Return the response to a request for the groups of a partition, with their state at the end of the cut."""
        states = {group_id: group.state_name for group_id, group in self._groups.items()}
        states.update(dict.fromkeys(self._rebuilds, GroupStateName.UNKNOWN))
        of_partition = {
            group_id: state for group_id, state in states.items() if self._partition_of(group_id) == partition
        }
        return group_listing(message, of_partition, self._leader_epoch)

    def _partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._beginning.request_partition_count)

    def _refusal_of(self, group_id: str, partition: int) -> ApiError | None:
        """Return why no message of a group is applied in a request partition; None if they are."""
        if not self._served.includes(group_id):
            return self._served.refusal(group_id)
        if self._partition_of(group_id) != partition:
            # Order holds within a partition only: a message of another one is not part of the group's history.
            return InvalidRequestError(f"Group {group_id} is not in partition {partition} of the request log.")
        return None

    def _on_time(self, message: LoggedRequest, stamp_ms: int, cut: TakenCut) -> LoggedRequest:
        """Return the message with the time at which it is applied."""
        envelope = message.envelope
        if envelope.api_key == ApiKey.TICK and envelope.leader_epoch == self._leader_epoch:
            sent_ms = envelope.body.get("time_ms", 0)
            if isinstance(sent_ms, int):
                self.clocks.measure_lead(cut.partition, sent_ms, stamp_ms)
        time_ms = self.clocks.message_ms(cut.partition, message.time_ms, stamp_ms, cut.cut_ms)
        return message if message.time_ms == time_ms else message._replace(time_ms=time_ms)

    def finish_rebuild(self, rebuild: Rebuild, cut_ms: int) -> list[GroupOutput]:
        """Restore a group whose rows were read: apply the messages before the bad one again, then quarantine the group.

        Args:
            rebuild: the group, with its rows.
            cut_ms: time of the cut that its messages are part of; epoch ms.
        """
        del self._rebuilds[rebuild.group_id]
        while True:
            actors = self._rebuilt(rebuild)
            try:
                for index, message in enumerate(rebuild.messages):
                    if index in rebuild.bad:
                        role, reason = rebuild.bad[index]
                        actors.quarantine(role, message, reason)
                    else:
                        actors.receive(message)
                effects = actors.finish(cut_ms)
                first, count = rebuild.messages[0], len(rebuild.messages)
                output = self._final(rebuild.group_id, rebuild.partition, count, first.time_ms, cut_ms, effects)
            except ActorFailedError as failed:
                rebuild.fail(failed)
                continue
            break
        self._groups[rebuild.group_id] = actors
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
                if self._beginning.poison == (cut.partition, message.offset):
                    group.quarantine(ActorRole.LEADER, message, "processors ended while they applied it")
                else:
                    group.receive(message)
            effects = group.finish(cut.cut_ms)
            output = self._final(group_id, cut.partition, len(messages), messages[0].time_ms, cut.cut_ms, effects)
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
        rebuild = Rebuild(group_id, partition, messages)
        offset = messages[rebuild.fail(failed)].offset
        logger.error(
            Event("group_rebuilding", group=group_id, offset=offset, reason=rebuild.reason),
            exc_info=failed.__cause__,
        )
        del self._groups[group_id]
        self._rebuilds[group_id] = rebuild
        self._new_rebuilds.append(rebuild)

    def _queued(self, rebuild: Rebuild, messages: list[LoggedRequest], cut: TakenCut) -> GroupOutput | None:
        room = MAX_QUEUED_MESSAGES - len(rebuild.messages)
        rebuild.messages += messages[:room]
        error = CoordinatorLoadInProgressError(
            f"Group {rebuild.group_id} is being rebuilt, and {MAX_QUEUED_MESSAGES} messages wait for it.",
            "Try again later.",
        )
        refused = [
            refusal(message.envelope.encoded(), message.offset, error, self._leader_epoch)
            for message in messages[room:]
            if message.envelope.reply_partition >= 0
        ]
        if not refused:
            return None
        return self._final(rebuild.group_id, cut.partition, len(refused), cut.times_ms[0], cut.cut_ms, refused)

    def _final(
        self, group_id: str, partition: int, message_count: int, oldest_ms: int, cut_ms: int, effects: Sequence[Effect]
    ) -> GroupOutput:
        """Return the output as final values; an exception here is the group's failure, too."""
        try:
            rows: list[StateRow] = []
            responses: list[OutboxResponse] = []
            messages: list[tuple[str, str]] = []
            unaddressed_count = 0
            for effect in effects:
                if isinstance(effect, Respond):
                    response = self._responses.outbox_response(effect)
                    if response is None:
                        unaddressed_count += 1
                    else:
                        responses.append(response)
                elif isinstance(effect, Persist):
                    rows.append(effect.row)
                elif isinstance(effect, Send):
                    messages.append((effect.request.group_id, effect.request.model_dump_json(exclude_defaults=True)))
        except Exception as failure:
            raise ActorFailedError(ActorRole.LEADER, None) from failure
        return GroupOutput(
            group_id,
            partition,
            message_count,
            oldest_ms,
            cut_ms,
            effects,
            rows,
            responses,
            messages,
            unaddressed_count,
        )

    def _rebuilt(self, rebuild: Rebuild) -> GroupActors:
        group = fold(rebuild.rows or ()).groups.get(rebuild.group_id)
        return self._actors_of(group or FoldedGroup(rebuild.group_id, rebuild.partition))

    def _actors_of(self, group: FoldedGroup) -> GroupActors:
        partition = self._partition_of(group.group_id)
        context = ActorContext(
            group.group_id,
            partition,
            self._leader_epoch,
            self._broker,
            self.group_epoch_floor,
            self._beginning.state_id,
            self._beginning.host,
            self._beginning.earlier_states,
        )
        role, failure = next(iter(group.failures.items()), (ActorRole.COORDINATOR, ""))
        return GroupActors(context, Coordinator(context, group.metadata), leader_of(context, group), failure, role)

    def _raise_epoch_floor(self, rows: Iterable[StateRow]) -> None:
        for row in rows:
            if row.record_type is RecordType.GROUP_METADATA:
                for fields in row.payload["records"]:
                    # Each commit passes here: only what may raise it is worth a validation.
                    if fields["type"] == _REMOVED:
                        removed = ShareGroupRemoved.model_validate(fields)
                        self.group_epoch_floor = max(self.group_epoch_floor, removed.epoch)


def leader_of(context: ActorContext, group: FoldedGroup) -> Leader:
    """Return the leader of a group from its rows: with its locks, without sessions and known offsets."""
    partitions = [_led(partition) for partition in group.partitions.values()]
    return Leader(
        context,
        group.metadata.config_overrides,
        partitions,
        group.last_requests,
        {member_id: member.client_process for member_id, member in group.metadata.members.items()},
        group.dead_letter_failure,
        paused_at_offset=None if group.metadata.pause is None else group.request_offset,
    )


def _led(folded: FoldedPartition) -> LedPartition:
    return LedPartition(
        folded.topic, folded.topic_id, folded.partition, folded.share_partition, folded.epochs, rejected=folded.rejected
    )
