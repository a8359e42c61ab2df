"""The takeover of the state table and the logs from an earlier processor.

The order matters:

    1. check      a start that is refused creates nothing and fences no processor
    2. fence      a row with the next leader epoch: older processors can commit no more
    3. fold       the state table has the groups, the last marker, and its outbox
    4. announce   in every request partition: older processors stop before they apply later messages
    5. publish    the outbox of the last marker again; internal messages with the new leader epoch
    6. announce   in every response partition: members reopen their sessions

Until 2 the older processor may still commit, so steps 3 to 6 read and announce only what is final. From 4 on it applies
nothing more, even if it would never commit again, and its responses to what it had applied are in the outbox, or are
made again: the loop begins at the end offsets of the last marker, and messages after it are applied again.

An older copy of the table that an administrator accepts becomes a new state, with an id of its own (`older_state`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ConfigurationError
from sharegroup.event_log import Event
from sharegroup.logs.local import LocalLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, LogRecord, NewRecord, TopicDescription
from sharegroup.processor.clocks import PartitionClocks, started_clocks
from sharegroup.processor.commit import FencedTable, Position
from sharegroup.processor.output import LogPublisher
from sharegroup.processor.takeover.beginning import Beginning, ServedGroups
from sharegroup.processor.takeover.older_state import (
    CheckedState,
    PresentState,
    StateTable,
    checked_state,
    folded_recovery,
    log_awaiting_groups,
)
from sharegroup.processor.topics import ensure_topics
from sharegroup.protocol.internal_messages import ProcessorStarted
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.row_payloads import IMPORTED_FROM, EarlierState
from sharegroup.protocol.rows import StateRow
from sharegroup.state.delta_log_repair import repair_tip
from sharegroup.state.delta_table import translated
from sharegroup.state.fold import FoldedState
from sharegroup.state.lost_rows import lost_rows, present_commits
from sharegroup.state.reader import CommitMarkerInfo, StateTableReader
from sharegroup.state.writer import StateTableWriter

logger = logging.getLogger("sharegroup.processor")

ONE_BY_ONE_AFTER_TAKEOVERS = 2
"""Announced takeovers at one marker after which messages are applied one per commit."""

_FILLERS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class Takeover:
    """The state from which a processor starts.

    Attributes:
        folded: the groups of the state table that are served; they change with the processor.
        fold_again: returns all groups of the state table at the takeover, of which nothing changes with the processor.
        commit_id: id of the last commit; -1 when there is none.
        clocks: of the request partitions; they begin at the announcement, and never before a message.
        announced_offsets: request partition → offset of this processor's announcement.
        announced_since_marker: processors that came to apply messages since the last marker, before this one. One that
            ended earlier, for example while it folded the state, has no message that could have ended it.
    """

    writer: FencedTable
    publisher: LogPublisher
    folded: FoldedState
    fold_again: Callable[[], FoldedState]
    position: Position
    commit_id: int
    marker: CommitMarkerPayload | None
    served: ServedGroups
    clocks: PartitionClocks
    state_id: str
    earlier_states: tuple[EarlierState, ...]
    announced_offsets: Mapping[int, int]
    announced_since_marker: int

    @property
    def applies_one_by_one(self) -> bool:
        """Return True if a message after the marker may have ended the earlier processors."""
        return self.announced_since_marker >= ONE_BY_ONE_AFTER_TAKEOVERS

    @property
    def beginning(self) -> Beginning:
        """Return where the live groups begin."""
        return Beginning(
            self.folded,
            self.position.leader_epoch,
            len(self.announced_offsets),
            self.position.group_epoch_floor,
            self.marker.attempted_offset if self.marker else None,
            self.state_id,
            self.announced_offsets,
            self.served,
            socket.gethostname(),
            self.earlier_states,
        )

    def unapplied_records(self, log: Log, topic: str) -> list[LogRecord]:
        """Return the messages of groups that were being rebuilt at the time of the last marker, in offset order."""
        ends = self.position.end_offsets
        records: list[LogRecord] = []
        for group_id, first_offset in self.position.unapplied_groups.items():
            partition = partition_for(group_id, len(ends))
            between = log.read(topic, partition, first_offset, ends[partition])
            records += [record for record in between if record.key == group_id.encode()]
        return sorted(records, key=lambda record: (record.partition, record.offset))


class DeltaStateTable(StateTableReader):
    """The state table in Delta. It is opened once: each call follows its log to the newest version."""

    def __init__(self, path: str) -> None:
        super().__init__(path, stays_open=True)

    @classmethod
    def repaired(cls, path: str, *arguments: Any) -> Self:
        """Return the table, with further arguments of a derived class, after repairing commits that are torn.

        Raises:
            StateTableError: the table cannot be repaired.
        """
        with translated(path, "repaired"):
            repair_tip(path)
        return cls(path, *arguments)

    def lost_rows(self, accepted_commit_id: int) -> str:
        """Return which rows another program has removed; "" when none are missing."""
        return lost_rows(self.path, self._newest(), accepted_commit_id)

    def fence(
        self, identity: Mapping[str, Any], after_epoch: int | None = None, *, accepts_loss: bool = False
    ) -> StateTableWriter:
        """Commit a fence with the next leader epoch; see `StateTableWriter.open`."""
        transactions: dict[str, int] = {}
        if accepts_loss and self.exists():
            present = present_commits(self.path, self._newest())
            transactions = present.transactions()
            identity = {**identity, "accepted_commit_id": present.last_commit_id}
        return StateTableWriter.open(
            self.path, identity, table=self._table, after_epoch=after_epoch, transactions=transactions
        )

    def present_state(self) -> PresentState:
        """Return the state of all groups."""
        return folded_recovery(self.recovery())


def take_over(
    log: Log,
    table: StateTable,
    config: ProcessorConfig,
    accepts_older_state: bool = False,
    broker: BrokerConfig | None = None,
    after_epoch: int | None = None,
    fenced: Callable[[int], None] = lambda _: None,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Takeover:
    """Take over, in the order of the module's description.

    Args:
        log: record, request and response log.
        accepts_older_state: True if the state table may be an older copy than the request log.
        broker: defaults and bounds of groups, for the fence.
        after_epoch: take over only from the processor with this leader epoch; None takes over from any.
        fenced: called with the leader epoch, before the fold.
        monotonic_s: a clock that is never set, for the times of the request partitions.

    Raises:
        FencedProcessorError: another processor has taken over from the one with `after_epoch`.
        ConfigurationError: topics contradict the configuration, or the counts recorded in the state table.
        OlderStateError: the state table is an older copy, or lacks rows.
        StateTableError: the state table cannot be read or written.
    """
    # 1. Check.
    request_topic, checked = _check(log, config, table, accepts_older_state)
    # 2. Fence.
    identity = _identity(config, request_topic, checked, broker)
    writer = table.fence(identity, after_epoch, accepts_loss=checked.is_accepted)
    fenced(writer.leader_epoch)
    # 3. Fold.
    present = table.present_state()
    folded, last = present.folded, present.last_marker
    marker = last.payload if last else None
    ends = _start_offsets(log, request_topic, marker)
    _raise_record_ends(log, folded)
    served = _served_groups(config, folded)
    # 4. Announce to processors: the stamps begin the clocks.
    publisher = LogPublisher(log, config, request_topic.topic_id, writer.leader_epoch)
    state_id = checked.state_id or table.state_id()
    announcement = ProcessorStarted(pid=os.getpid(), host=socket.gethostname(), state_id=state_id)
    announced = publisher.announce_to_processors(announcement)
    clocks = started_clocks(_announcement_stamps(log, config, announced), marker, monotonic_s)
    # 5. Publish the outbox.
    if last is not None:
        _publish_outbox(publisher, config, last, writer.leader_epoch, clocks)
    # 6. Announce to members.
    publisher.announce_to_members(announcement)
    if accepts_older_state:
        _log_repeated(log, config, ends)
    if checked.earlier_states:
        log_awaiting_groups(folded, broker or BrokerConfig(), state_id)
    return Takeover(
        writer=writer,
        publisher=publisher,
        folded=served.of(folded),
        fold_again=present.fold_again,
        position=_position(writer.leader_epoch, ends, marker),
        commit_id=last.commit_id if last else -1,
        marker=marker,
        served=served,
        clocks=clocks,
        state_id=state_id,
        earlier_states=checked.earlier_states,
        announced_offsets=announced,
        announced_since_marker=sum(epoch > (last.leader_epoch if last else 0) for epoch in checked.announced_epochs),
    )


def _check(
    log: Log, config: ProcessorConfig, table: StateTable, accepts_older_state: bool
) -> tuple[TopicDescription, CheckedState]:
    """Check the state table and the topics against the configuration, and the state against the request log."""
    fence = table.last_fence() if table.exists() else None
    _check_is_own(fence, config)
    _check_counts(fence, config)
    request_topic = ensure_topics(log, config)
    return request_topic, checked_state(log, config, table, fence, accepts_older_state)


def _identity(
    config: ProcessorConfig, request_topic: TopicDescription, checked: CheckedState, broker: BrokerConfig | None
) -> dict[str, Any]:
    """Return what the fence records of this processor, by which later ones and audits know it."""
    identity = {
        **_partition_counts(config),
        "request_topic_id": request_topic.topic_id,
        "state_id": checked.state_id,
        "accepted_commit_id": checked.accepted_commit_id,
        "earlier_states": [earlier.model_dump() for earlier in checked.earlier_states],
        "group_pattern": config.processor_group_pattern,
    }
    if broker is not None:
        identity["broker"] = broker.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return identity


def _position(leader_epoch: int, ends: Mapping[int, int], marker: CommitMarkerPayload | None) -> Position:
    """Return the position after the last commit, from which requests are applied."""
    if marker is None:
        return Position(leader_epoch, ends, {}, 0, {})
    times_ms, floor = marker.message_times_ms, marker.group_epoch_floor
    return Position(leader_epoch, ends, times_ms, floor, marker.unapplied_groups)


def _partition_counts(config: ProcessorConfig) -> dict[str, int]:
    """Return the partition counts that the fence records: the partition of a group or member depends on them."""
    return {key: config.value(key) for key in ("request.topic.partitions", "response.topic.partitions")}


def _check_is_own(fence: StateRow | None, config: ProcessorConfig) -> None:
    source = fence.payload.get(IMPORTED_FROM) if fence else None
    if source is not None:
        raise ConfigurationError(
            f"State table {config.state_table_path} holds the history of {source}, for audits.",
            "Name another state table; to continue a share group of Kafka here, use sharegroup migrate from-kafka.",
        )


def _check_counts(fence: StateRow | None, config: ProcessorConfig) -> None:
    for key, count in _partition_counts(config).items():
        recorded = fence.payload.get(key, count) if fence else count
        if recorded != count:
            raise ConfigurationError(
                f"{key} is {count}, but state table {config.state_table_path} was made with {recorded}.",
                f"Set {key} to {recorded}: the count is fixed by the first start.",
            )


def _start_offsets(log: Log, request_topic: TopicDescription, marker: CommitMarkerPayload | None) -> dict[int, int]:
    """Return the start offset of each request partition, in a log that may have lost messages at either end."""
    starts: dict[int, int] = {}
    applied = marker.end_offsets if marker else {}
    for partition, offsets in log.offsets(request_topic.name).items():
        start = applied.get(partition, 0)
        if start < offsets.start_offset:
            # Deleted by retention; members stopped waiting for the responses long ago.
            logger.warning(
                Event("requests_deleted", partition=partition, applied_to=start, log_starts_at=offsets.start_offset)
            )
            start = offsets.start_offset
        if start > offsets.end_offset:
            _raise_request_end(log, request_topic.name, partition, start, offsets.end_offset)
        starts[partition] = start
    return starts


def _raise_request_end(log: Log, topic: str, partition: int, start: int, end_offset: int) -> None:
    """Raise the end offset of a lost request log: offsets that the state table has seen must not be assigned again."""
    logger.warning(Event("request_log_lost", partition=f"{topic}-{partition}", end_offset=end_offset, applied_to=start))
    if isinstance(log, LocalLog):
        log.raise_end_offset(topic, partition, start)
        return
    # Kafka assigns offsets only to records; these are not read.
    while end_offset < start:
        count = min(start - end_offset, _FILLERS_AT_ONCE)
        end_offset = log.append(topic, partition, [NewRecord(None, None)] * count) + count


def _raise_record_ends(log: Log, folded: FoldedState) -> None:
    """Raise the end offsets of an embedded log that lost records: seen offsets must not be assigned again."""
    if not isinstance(log, LocalLog):
        return
    seen: dict[tuple[str, str, int], int] = {}
    for group in folded.groups.values():
        for partition in group.partitions.values():
            key = (partition.topic, partition.topic_id, partition.partition)
            seen[key] = max(seen.get(key, 0), partition.share_partition.next_offset)
    topic_ids = {topic.name: topic.topic_id for topic in log.topics()}
    offsets = {topic: log.offsets(topic) for topic in {topic for topic, _, _ in seen} & topic_ids.keys()}
    for (topic, topic_id, index), next_offset in seen.items():
        if topic_ids.get(topic) != topic_id:
            continue
        end_offset = offsets[topic][index].end_offset
        if end_offset < next_offset:
            logger.warning(
                Event(
                    "records_lost", share_partition=f"{topic}-{index}", end_offset=end_offset, acquired_to=next_offset
                )
            )
            log.raise_end_offset(topic, index, next_offset)


def _served_groups(config: ProcessorConfig, folded: FoldedState) -> ServedGroups:
    """Return the groups that the processor serves, and log that there are others."""
    served = ServedGroups(config.processor_group_pattern)
    others = sorted(group_id for group_id in folded.groups if not served.includes(group_id))
    if others:
        logger.warning(Event("groups_not_served", count=len(others), first=others[0], pattern=served.pattern))
    return served


def _publish_outbox(
    publisher: LogPublisher, config: ProcessorConfig, last: CommitMarkerInfo, leader_epoch: int, clocks: PartitionClocks
) -> None:
    messages = []
    for value in last.payload.messages:
        fields = {**json.loads(value), "leader_epoch": leader_epoch}
        messages.append((fields["group_id"], json.dumps(fields)))
    count = config.request_topic_partitions
    responses = [(partition_for(json.loads(r.value)["group_id"], count), r) for r in last.payload.responses]
    publisher.publish(messages, responses, last.commit_id, clocks.now_ms)


def _announcement_stamps(log: Log, config: ProcessorConfig, announced: Mapping[int, int]) -> dict[int, int]:
    stamps_ms: dict[int, int] = {}
    for partition, offset in announced.items():
        (record,) = log.read(config.request_topic_name, partition, offset, offset + 1)
        stamps_ms[partition] = record.timestamp_ms
    return stamps_ms


def _log_repeated(log: Log, config: ProcessorConfig, ends: Mapping[int, int]) -> None:
    for partition, offsets in log.offsets(config.request_topic_name).items():
        first = ends[partition]
        logger.warning(
            Event("messages_applied_again", partition=partition, first=first, count=offsets.end_offset - first)
        )
