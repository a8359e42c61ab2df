"""`verify`: replay every row of the state table and check every invariant of the engine on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from sharegroup.audit.commits import check_commits
from sharegroup.audit.finding import Finding
from sharegroup.audit.kafka_coordinator import KafkaCoordinator
from sharegroup.audit.limits_in_force import LimitsInForce
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.coordinator.share_coordinator import SnapshotEpochs, row_type, share_partition_row
from sharegroup.core.invariants import Circumstances, Violation, check_record, check_state
from sharegroup.core.record_state import Cause
from sharegroup.core.records import SharePartitionLimits, SharePartitionRecord, StartOffsetMoved, Transition
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import StateTableError
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupConfig,
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupRemoved,
    ShareGroupTopicRemoved,
    group_record,
)
from sharegroup.protocol.group_status import GroupStatus, GroupStatusPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import SHARE_PARTITION_TYPES, fold_order

_REPLAYED_COLUMNS = ("snapshot_epoch", "start_offset", "delivery_complete_count", "state_batches", "runs")


@dataclass
class Verification:
    """What `verify` saw.

    Attributes:
        row_count: rows replayed.
        transition_count: transitions replayed.
        findings: violations: of the commits, then of the groups in the order of their rows; empty when all holds.
        degraded: group id → why its records stay ARCHIVING: their dead letters cannot be written. No violation.
    """

    row_count: int = 0
    transition_count: int = 0
    findings: list[Finding] = field(default_factory=list)
    degraded: dict[str, str] = field(default_factory=dict)


def verify(rows: Iterable[StateRow], broker: BrokerConfig) -> Verification:
    """Replay rows from the first on, and check each commit, each transition, each start offset and each snapshot.

    Args:
        rows: all rows of the table; without the oldest ones, as after a pruning, a share-partition is followed from
            its first snapshot on.
        broker: defaults and bounds that were in force.
    """
    ordered = sorted(rows, key=fold_order)
    verification = Verification(row_count=len(ordered), findings=check_commits(ordered))
    groups: dict[str, _GroupVerifier] = {}
    for row in ordered:
        if row.group_id:
            if row.group_id not in groups:
                groups[row.group_id] = _GroupVerifier(row.group_id, broker, verification)
            groups[row.group_id].check(row)
    for group in groups.values():
        group.finish()
    return verification


@dataclass
class _Replay:
    """A share-partition as the rows so far make it."""

    share_partition: SharePartition
    epochs: SnapshotEpochs


class _GroupVerifier:
    def __init__(self, group_id: str, broker: BrokerConfig, verification: Verification) -> None:
        self._group_id = group_id
        self._broker = broker
        self._verification = verification
        self._replays: dict[tuple[str, int], _Replay] = {}
        self._ended: set[tuple[str, int]] = set()
        self._kafka = KafkaCoordinator()
        self._members: set[str] = set()
        self._limits = LimitsInForce(_limits(broker, {}))
        self._group_epoch = 0
        self._removed_epoch = 0
        self._last: dict[tuple[str, int], StateRow] = {}

    def check(self, row: StateRow) -> None:
        if row.record_type is RecordType.GROUP_METADATA:
            self._check_metadata(row)
        elif row.record_type is RecordType.TABLE_SNAPSHOT:
            self._check_table_snapshot(row)
        elif row.record_type is RecordType.GROUP_STATUS:
            self._note_status(row, [row.payload])
        elif row.record_type in SHARE_PARTITION_TYPES:
            self._last[row.topic_id, row.partition] = row
            self._check_share_partition(row)

    def finish(self) -> None:
        for key, replay in self._replays.items():
            self._report(self._last[key], check_state(replay.share_partition))
            self._report(self._last[key], self._kafka.compare(self._last[key], replay.share_partition))

    def _check_table_snapshot(self, row: StateRow) -> None:
        """A table snapshot says again what the rows before it say, and begins a table without them."""
        if row.partition < 0:
            self._check_group_snapshot(row)
            return
        replay = self._replays.get((row.topic_id, row.partition))
        if replay is None:
            self._begin(row)
            self._last[row.topic_id, row.partition] = row
            return
        self._report(row, _unlike(row, _table_snapshot_row(replay.share_partition, replay.epochs)))
        self._report(row, self._kafka.compare(row, replay.share_partition))

    def _note_status(self, row: StateRow, payloads: Iterable[Any]) -> None:
        try:
            statuses = [GroupStatusPayload.model_validate(payload) for payload in payloads]
        except ValidationError as error:
            self._report(row, [Violation("payload_can_be_read", repr(error))])
            return
        for status in statuses:
            if status.status is GroupStatus.DEGRADED:
                self._verification.degraded[self._group_id] = status.reason
            elif status.role is ActorRole.LEADER:
                self._verification.degraded.pop(self._group_id, None)

    def _check_group_snapshot(self, row: StateRow) -> None:
        self._note_status(row, row.payload.get("status", ()))
        for record in self._records(row):
            match record:
                case ShareGroupConfig():
                    self._may_be_in_force(record)
                case ShareGroupMetadata() if self._group_epoch not in (0, record.epoch):
                    detail = f"a table snapshot has group epoch {record.epoch}, the rows before it {self._group_epoch}"
                    self._report(row, [Violation("row_agrees_with_its_replay", detail)])
                case ShareGroupMetadata():
                    self._group_epoch = record.epoch

    def _may_be_in_force(self, record: ShareGroupConfig) -> None:
        self._limits.add(_limits(self._broker, record.overrides))

    def _records(self, row: StateRow) -> list[GroupRecord]:
        try:
            return [group_record(fields) for fields in row.payload["records"]]
        except (KeyError, ValidationError) as error:
            self._report(row, [Violation("payload_can_be_read", repr(error))])
            return []

    def _check_metadata(self, row: StateRow) -> None:
        for record in self._records(row):
            match record:
                case ShareGroupConfig():
                    self._may_be_in_force(record)
                case ShareGroupMetadata():
                    self._check_group_epoch(row, record.epoch)
                    self._group_epoch = record.epoch
                case ShareGroupMemberMetadata():
                    self._members.add(record.member_id)
                case ShareGroupMemberRemoved():
                    self._members.discard(record.member_id)
                case ShareGroupTopicRemoved():
                    self._check_no_state(row, {key for key in self._replays if key[0] == record.topic_id})
                case ShareGroupRemoved():
                    self._limits.add(_limits(self._broker, {}))
                    self._check_dead(row)
                    self._removed_epoch = record.epoch

    def _check_group_epoch(self, row: StateRow, epoch: int) -> None:
        """A group begins at any epoch above those of an earlier group of its name, and goes on by one."""
        is_next = epoch == self._group_epoch + 1 if self._group_epoch else epoch > self._removed_epoch
        if not is_next:
            detail = f"group epoch {epoch} comes after {self._group_epoch or self._removed_epoch}"
            self._report(row, [Violation("group_epoch_rises_by_one", detail)])

    def _check_no_state(self, row: StateRow, keys: Iterable[tuple[str, int]]) -> None:
        for topic_id, partition in sorted(keys):
            detail = f"{topic_id}-{partition} has its state still"
            self._report(row, [Violation("state_ends_before_what_it_belongs_to", detail)])

    def _check_dead(self, row: StateRow) -> None:
        self._check_no_state(row, self._replays)
        if self._members:
            detail = f"it has {len(self._members)} members still"
            self._report(row, [Violation("only_an_empty_group_is_dead", detail)])
        self._group_epoch = 0

    def _check_share_partition(self, row: StateRow) -> None:
        key = (row.topic_id, row.partition)
        replay = self._replays.get(key)
        if row.record_type is RecordType.SHARE_TOMBSTONE:
            self._end(row, replay)
        elif replay is None:
            self._begin(row)
        elif row.record_type is RecordType.SHARE_SNAPSHOT and row.state_epoch > replay.share_partition.state_epoch:
            self._report(row, self._kafka.initialize(row))
            self._follow_from(row)
        else:
            self._replay(row, replay)

    def _replay(self, row: StateRow, replay: _Replay) -> None:
        share_partition = replay.share_partition
        for entry in row.transitions:
            self._verification.transition_count += 1
            transition = entry.transition
            if transition.from_state is None and transition.first_offset > share_partition.next_offset:
                self._follow_log_start(row, share_partition)
            self._check_and_apply(row, share_partition, transition, entry.time_ms)
            self._pass_finished(share_partition)
        self._follow_log_start(row, share_partition)
        self._report(row, _differences(row, replay))
        if row.record_type is not RecordType.SHARE_TRANSITIONS:
            self._report(row, self._kafka.write(row))
        if row.record_type is RecordType.SHARE_SNAPSHOT:
            self._report(row, check_state(share_partition))
            self._report(row, self._kafka.compare(row, share_partition))
        replay.epochs = replay.epochs.after(row.record_type)

    def _end(self, row: StateRow, replay: _Replay | None) -> None:
        key = (row.topic_id, row.partition)
        self._ended.add(key)
        if replay is None:
            return
        self._report(row, self._kafka.delete(row))
        written = (row.state_epoch, row.snapshot_epoch)
        if written != (found := (replay.share_partition.state_epoch, replay.epochs.snapshot_epoch)):
            detail = f"state and snapshot epoch are {written}, the replay has {found}"
            self._report(row, [Violation("row_agrees_with_its_replay", detail)])
        del self._replays[key]

    def _begin(self, row: StateRow) -> None:
        """Follow the share-partition from its first snapshot on; what happened before it is not in the table."""
        is_table_snapshot = row.record_type is RecordType.TABLE_SNAPSHOT
        is_snapshot = row.record_type is RecordType.SHARE_SNAPSHOT
        if (row.topic_id, row.partition) in self._ended and not is_snapshot:
            detail = f"a {row.record_type.value} comes after a tombstone"
            self._report(row, [Violation("tombstone_ends_a_state", detail)])
        elif (row.topic_id, row.partition) in self._ended or (is_snapshot and not row.snapshot_epoch):
            self._report(row, self._kafka.initialize(row))
        elif is_snapshot or is_table_snapshot:
            self._kafka.begin(row)
        if is_snapshot or is_table_snapshot:
            self._follow_from(row)

    def _follow_from(self, row: StateRow) -> None:
        """Take a state as a snapshot tells it."""
        try:
            share_partition = SharePartition(row.start_offset, (entry.run for entry in row.runs), row.state_epoch)
        except StateTableError as error:
            self._report(row, [Violation("snapshot_is_a_state", str(error))])
            return
        epochs = SnapshotEpochs(row.snapshot_epoch)
        self._replays[row.topic_id, row.partition] = _Replay(share_partition, epochs)
        if row.record_type is RecordType.TABLE_SNAPSHOT:
            expected = _table_snapshot_row(share_partition, epochs)
        else:
            expected = share_partition_row(row.record_type, row.snapshot_epoch, share_partition, row.transitions)
        self._report(row, _unlike(row, expected))

    def _check_and_apply(
        self, row: StateRow, share_partition: SharePartition, record: SharePartitionRecord, now_ms: int
    ) -> None:
        if isinstance(record, Transition) and record.first_offset > record.last_offset:
            detail = f"{record.first_offset}..{record.last_offset} by {record.cause.value}"
            self._report(row, [Violation("ranges_are_ascending", detail)])
            return
        highest = self._limits.highest_delivery_count_limit

        def violations(limits: SharePartitionLimits) -> list[Violation]:
            return check_record(share_partition, record, Circumstances(limits, now_ms, highest))

        self._report(row, self._limits.violations(violations, row.time_ms))
        share_partition.apply(record)

    def _follow_log_start(self, row: StateRow, share_partition: SharePartition) -> None:
        log_start_offset = row.payload.get("log_start_offset", -1)
        if log_start_offset > share_partition.start_offset:
            moved = StartOffsetMoved(log_start_offset, Cause.LOG_START)
            self._check_and_apply(row, share_partition, moved, row.time_ms)
            self._pass_finished(share_partition)

    def _pass_finished(self, share_partition: SharePartition) -> None:
        prefix = share_partition.runs.terminal_prefix()
        if prefix and prefix[0].first_offset == share_partition.start_offset:
            share_partition.apply(StartOffsetMoved(prefix[-1].last_offset + 1))

    def _report(self, row: StateRow, violations: Iterable[Violation]) -> None:
        place = f"group {self._group_id} {row.topic}-{row.partition}" if row.topic else f"group {self._group_id}"
        self._verification.findings += [Finding(place, found, row.request_offset) for found in violations]


def _table_snapshot_row(share_partition: SharePartition, epochs: SnapshotEpochs) -> StateRow:
    """A share-partition's row of a table snapshot, by its replay."""
    expected = share_partition_row(RecordType.SHARE_SNAPSHOT, epochs.snapshot_epoch, share_partition, [])
    return expected.model_copy(update={"state_batches": []})


def _differences(row: StateRow, replay: _Replay) -> list[Violation]:
    """Where a row's own words on the state after it differ from what its transitions lead to."""
    snapshot_epoch = replay.epochs.after(row.record_type).snapshot_epoch
    expected = share_partition_row(row.record_type, snapshot_epoch, replay.share_partition, row.transitions)
    violations = _unlike(row, expected)
    if row.state_epoch != replay.share_partition.state_epoch:
        detail = f"state epoch {row.state_epoch} comes after {replay.share_partition.state_epoch}"
        rule = "falls" if row.state_epoch < replay.share_partition.state_epoch else "rises_without_a_new_state"
        violations.append(Violation(f"state_epoch_never_{rule}", detail))
    # Where a snapshot is due is a matter of configuration; what else a row is follows from its transitions.
    kind = row_type(SnapshotEpochs(0), row.transitions, updates_per_snapshot=1)
    if row.record_type not in (kind, RecordType.SHARE_SNAPSHOT):
        detail = f"it is a {row.record_type.value} with the transitions of a {kind.value}"
        violations.append(Violation("row_is_of_the_type_of_its_transitions", detail))
    return violations


def _unlike(row: StateRow, expected: StateRow) -> list[Violation]:
    return [
        Violation("row_agrees_with_its_replay", f"{column} is {_short(written)}, the replay has {_short(found)}")
        for column in _REPLAYED_COLUMNS
        if (written := getattr(row, column)) != (found := getattr(expected, column))
    ]


def _short(value: object) -> object:
    return f"{len(value)} entries" if isinstance(value, list) else value


def _limits(broker: BrokerConfig, overrides: Mapping[str, str]) -> SharePartitionLimits:
    return effective_group_config(broker, overrides).share_partition_limits
