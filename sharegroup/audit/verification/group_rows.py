"""Checks of the rows that no share-partition has: metadata and status of the groups, fences, table snapshots.

These rows are few. They are read first, in fold order, and what the rows of share-partitions need of them is small
(`TableContext`): the limits that were in force, the ends of topics and groups, and the times of the table snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic import ValidationError

from sharegroup.audit.verification.findings import Finding, row_finding
from sharegroup.audit.verification.limits_in_force import Configuration, limits_of
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.group_state import GroupState
from sharegroup.core.invariants import Violation
from sharegroup.errors import ApiError, ConfigurationError
from sharegroup.logs.partitioner import partition_for
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_records import (
    GroupRecord,
    ShareGroupConfig,
    ShareGroupMetadata,
    ShareGroupRemoved,
    ShareGroupTopicRemoved,
    group_record,
)
from sharegroup.protocol.row_payloads import GroupStatus, GroupStatusPayload, TableSnapshotPayload
from sharegroup.protocol.rows import RecordType, StateRow

REQUEST_PARTITIONS_KEY = "request.topic.partitions"


@dataclass(frozen=True, slots=True)
class GroupContext:
    """The part of a group that its share-partitions are checked with.

    Attributes:
        configurations: the group's configurations in their order; the first is that of a group without its own.
        removals: message and topic id of each topic that was removed from the group; of the group itself "".
        snapshots_ms: times of the table snapshots that have a row of the group.
    """

    configurations: tuple[Configuration, ...]
    removals: tuple[tuple[int, str], ...] = ()
    snapshots_ms: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TableContext:
    """The part of all other rows that share-partitions are checked with.

    Attributes:
        groups: group id → its context, of the groups that have one.
        unknown: that of every other group.
        snapshots: time of each table snapshot → the last commit in it.
        is_whole: True if the first row of every share-partition is known to be in the table, or a table snapshot
            instead of it.
    """

    groups: Mapping[str, GroupContext]
    unknown: GroupContext
    snapshots: Mapping[int, int]
    is_whole: bool

    def of(self, group_id: str) -> GroupContext:
        """Return the context of a group."""
        return self.groups.get(group_id, self.unknown)


class _Decided(NamedTuple):
    """The settings of a group's own, and where they were decided."""

    leader_epoch: int
    request_offset: int
    overrides: Mapping[str, str]


@dataclass
class _Group:
    """A group along its rows."""

    decided: list[_Decided] = field(default_factory=list)
    state: GroupState = field(default_factory=GroupState)
    removals: list[tuple[int, str]] = field(default_factory=list)
    snapshots_ms: set[int] = field(default_factory=set)
    removed_epoch: int = 0
    is_known: bool = False


class GroupRows:
    """Follows these rows, in fold order of each group.

    Args:
        broker: defaults and bounds that were in force, for processors whose Fence does not have them.
        is_whole: True if the first row of every group is known to be in the table, or a table snapshot instead of it.
    """

    def __init__(self, broker: BrokerConfig, *, is_whole: bool) -> None:
        self._brokers = [(-1, broker)]
        self._is_whole = is_whole
        self._groups: dict[str, _Group] = {}
        self._snapshots: dict[int, int] = {}
        self._partition_count = 0
        self.findings: list[Finding] = []
        self.degraded: dict[str, str] = {}

    def context(self) -> TableContext:
        """Return the part that share-partitions are checked with."""
        groups = {
            group_id: GroupContext(
                self._configurations(group.decided), tuple(group.removals), frozenset(group.snapshots_ms)
            )
            for group_id, group in self._groups.items()
            if group.decided or group.removals or group.snapshots_ms
        }
        return TableContext(groups, GroupContext(self._configurations([])), self._snapshots, self._is_whole)

    def check_all(self, rows: Iterable[StateRow]) -> None:
        """Check rows in fold order."""
        for row in rows:
            self.check(row)

    def check(self, row: StateRow) -> None:
        """Check the next row."""
        if not row.group_id:
            self._check_table_row(row)
            return
        group = self._groups.get(row.group_id)
        if group is None:
            # A pruned table begins with a table snapshot.
            is_known = self._is_whole and row.record_type is not RecordType.TABLE_SNAPSHOT
            group = self._groups[row.group_id] = _Group(is_known=is_known)
        if self._partition_count and row.request_partition != partition_for(row.group_id, self._partition_count):
            detail = f"a row is of request partition {row.request_partition}, which is not the group's"
            self._report(row, Violation("a_group_has_one_request_partition", detail))
        if row.record_type is RecordType.GROUP_METADATA:
            for record in self._records(row):
                self._check_record(row, group, record)
        elif row.record_type is RecordType.TABLE_SNAPSHOT:
            self._check_snapshot(row, group)
        elif row.record_type is RecordType.GROUP_STATUS:
            self._note_status(row, [row.payload])

    def _check_table_row(self, row: StateRow) -> None:
        if row.record_type is RecordType.FENCE:
            self._partition_count = row.payload.get(REQUEST_PARTITIONS_KEY, self._partition_count)
            self._note_broker(row)
        elif row.record_type is RecordType.TABLE_SNAPSHOT:
            if row.time_ms in self._snapshots:
                self._report(row, _repeated(row))
            try:
                self._snapshots[row.time_ms] = TableSnapshotPayload.model_validate(row.payload).commit_id
            except ValidationError:
                # `commits.beginning` reports it.
                return

    def _check_record(self, row: StateRow, group: _Group, record: GroupRecord) -> None:
        match record:
            case ShareGroupConfig():
                self._configure(row, group, record.overrides)
            case ShareGroupMetadata():
                self._check_group_epoch(row, group, record.epoch)
            case ShareGroupTopicRemoved():
                self._note_removal(row, group, record.topic_id)
            case ShareGroupRemoved():
                self._configure(row, group, {})
                self._note_removal(row, group, "")
                if group.state.members:
                    detail = f"it has {len(group.state.members)} members still"
                    self._report(row, Violation("only_an_empty_group_is_dead", detail))
                group.removed_epoch = record.epoch
                self.degraded.pop(row.group_id, None)
        try:
            group.state.apply(record)
        except KeyError as error:
            if group.is_known:
                self._report(row, Violation("payload_can_be_read", f"{record.type} of an unknown {error.args[0]!r}"))

    def _note_removal(self, row: StateRow, group: _Group, topic_id: str) -> None:
        # Kafka writes groups and states to two topics, whose order is not known.
        if not row.is_imported:
            group.removals.append((row.request_offset, topic_id))

    def _configure(self, row: StateRow, group: _Group, overrides: Mapping[str, str]) -> None:
        try:
            limits_of(self._broker_of(row.leader_epoch), overrides)
        except ApiError as error:
            self._report(row, Violation("payload_can_be_read", error.message))
            return
        group.decided.append(_Decided(row.leader_epoch, row.request_offset, overrides))

    def _note_broker(self, fence: StateRow) -> None:
        """Take the defaults and bounds of a processor, if its Fence has them."""
        if fence.payload.get("broker") is None:
            return
        try:
            broker = BrokerConfig.from_mapping(fence.payload["broker"])
        except (ConfigurationError, AttributeError) as error:
            self._report(fence, Violation("payload_can_be_read", str(error)))
            return
        if broker != self._brokers[-1][1]:
            self._brokers.append((fence.leader_epoch, broker))

    def _broker_of(self, leader_epoch: int) -> BrokerConfig:
        return next(broker for epoch, broker in reversed(self._brokers) if epoch <= max(leader_epoch, -1))

    def _configurations(self, decided: Sequence[_Decided]) -> tuple[Configuration, ...]:
        """Return the configurations of a group in their order; each processor's defaults and bounds apply to all."""
        # The takeover comes after all that an earlier processor decided.
        takeovers: list[tuple[int, int, int, Mapping[str, str]]] = [
            (epoch - 1, 1, -1, {}) for epoch, _ in self._brokers[1:]
        ]
        events = [(-1, 0, -1, {}), *((d.leader_epoch, 0, d.request_offset, d.overrides) for d in decided), *takeovers]
        overrides: Mapping[str, str] = {}
        configurations: list[Configuration] = []
        for epoch, is_takeover, offset, settings in sorted(events, key=itemgetter(0, 1)):
            if is_takeover:
                limits = limits_of(self._broker_of(epoch + 1), overrides)
                configurations.append(Configuration(offset, epoch, limits, from_epoch=epoch + 1))
            else:
                overrides = settings
                configurations.append(Configuration(offset, epoch, limits_of(self._broker_of(epoch), overrides)))
        return tuple(configurations)

    def _check_group_epoch(self, row: StateRow, group: _Group, epoch: int) -> None:
        """Check that a group begins at an epoch above those of an earlier group of its name, and rises by one."""
        known = group.state.group_epoch
        is_next = epoch == known + 1 if known else epoch > group.removed_epoch
        if not is_next:
            detail = f"group epoch {epoch} comes after {known or group.removed_epoch}"
            self._report(row, Violation("group_epoch_rises_by_one", detail))

    def _check_snapshot(self, row: StateRow, group: _Group) -> None:
        """Check a group's row of a table snapshot: it repeats the state after the rows before it, or begins it."""
        if row.time_ms in group.snapshots_ms:
            self._report(row, _repeated(row))
        group.snapshots_ms.add(row.time_ms)
        self._note_status(row, row.payload.get("status", ()))
        written = GroupState()
        for record in self._records(row):
            written.apply(record)
            if isinstance(record, ShareGroupConfig):
                self._configure(row, group, record.overrides)
        before = group.state
        if before.group_epoch not in (0, written.group_epoch):
            detail = f"a table snapshot has group epoch {written.group_epoch}, the rows before it {before.group_epoch}"
            self._report(row, Violation("row_agrees_with_its_replay", detail))
        elif group.is_known and (kinds := _differing_kinds(written, before)):
            detail = f"a table snapshot has another {', '.join(kinds)} than the rows before it"
            self._report(row, Violation("row_agrees_with_its_replay", detail))
        group.state, group.is_known = written, True

    def _note_status(self, row: StateRow, payloads: Iterable[Any]) -> None:
        try:
            statuses = [GroupStatusPayload.model_validate(payload) for payload in payloads]
        except ValidationError as error:
            self._report(row, Violation("payload_can_be_read", repr(error)))
            return
        for status in statuses:
            if status.status is GroupStatus.DEGRADED:
                self.degraded[row.group_id] = status.reason
            elif status.role is ActorRole.LEADER:
                self.degraded.pop(row.group_id, None)

    def _records(self, row: StateRow) -> list[GroupRecord]:
        try:
            return [group_record(fields) for fields in row.payload["records"]]
        except (KeyError, ValidationError) as error:
            self._report(row, Violation("payload_can_be_read", repr(error)))
            return []

    def _report(self, row: StateRow, violation: Violation) -> None:
        if row.group_id:
            finding = row_finding(row, violation)
        elif row.record_type is RecordType.FENCE:
            finding = Finding(f"leader epoch {row.leader_epoch}", violation)
        else:
            finding = Finding(f"table snapshot {row.time_ms}", violation)
        self.findings.append(finding)


def _repeated(row: StateRow) -> Violation:
    return Violation("table_snapshots_have_every_state", f"the table snapshot of {row.time_ms} has the row twice")


def _differing_kinds(written: GroupState, replayed: GroupState) -> list[str]:
    """Return the types of the records that only one of two states has."""
    sides = [{record.model_dump_json(): record.type for record in state.records()} for state in (written, replayed)]
    return sorted({kind for here, there in (sides, sides[::-1]) for text, kind in here.items() if text not in there})
