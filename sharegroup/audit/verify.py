"""`verify`: replay every row of the state table and check every invariant of the engine on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.core.invariants import Circumstances, Violation, check_record, check_state
from sharegroup.core.record_state import Cause
from sharegroup.core.records import SharePartitionLimits, SharePartitionRecord, StartOffsetMoved
from sharegroup.core.runs import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.group_records import ShareGroupConfig
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import SHARE_PARTITION_TYPES, fold_order


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation, and the row that shows it.

    Attributes:
        group_id: share group.
        place: topic-partition of the share-partition; "" for a row of none.
        request_offset: the row's message in the request log.
        violation: what does not hold.
    """

    group_id: str
    place: str
    request_offset: int
    violation: Violation

    def __str__(self) -> str:
        where = f"group {self.group_id} {self.place} at request offset {self.request_offset}".replace("  ", " ")
        return f"{where}: {self.violation.invariant}: {self.violation.detail}"


@dataclass
class Verification:
    """What `verify` saw.

    Attributes:
        row_count: rows replayed.
        transition_count: transitions replayed.
        findings: violations, in the order of the rows; empty when everything holds.
    """

    row_count: int = 0
    transition_count: int = 0
    findings: list[Finding] = field(default_factory=list)


def verify(rows: Iterable[StateRow], broker: BrokerConfig) -> Verification:
    """Replay rows from the first on, and check each transition, each start offset and each snapshot.

    Args:
        rows: all rows of the table; without the oldest ones a share-partition is followed from its first snapshot on.
        broker: defaults and bounds that were in force.
    """
    verification = Verification()
    verifiers: dict[str, _GroupVerifier] = {}
    for row in sorted(rows, key=fold_order):
        verification.row_count += 1
        if row.group_id:
            verifier = verifiers.setdefault(row.group_id, _GroupVerifier(row.group_id, broker, verification))
            verifier.check(row)
    for verifier in verifiers.values():
        verifier.finish()
    return verification


class _GroupVerifier:
    def __init__(self, group_id: str, broker: BrokerConfig, verification: Verification) -> None:
        self._group_id = group_id
        self._broker = broker
        self._verification = verification
        self._partitions: dict[tuple[str, int], tuple[str, SharePartition]] = {}
        self._limits = [_limits(broker, {})]
        self._last_offset = -1

    def check(self, row: StateRow) -> None:
        if row.record_type is RecordType.GROUP_METADATA:
            self._note_config(row)
        elif row.record_type in SHARE_PARTITION_TYPES:
            self._check_share_partition(row)
        self._last_offset = row.request_offset

    def finish(self) -> None:
        for place, share_partition in self._partitions.values():
            self._report(place, self._last_offset, check_state(share_partition))

    def _note_config(self, row: StateRow) -> None:
        """From here on the new limits count, and those before it as well: a batch may have seen both."""
        for record in row.payload.get("records", ()):
            if record["type"] == ShareGroupConfig.model_fields["type"].default:
                self._limits = [self._limits[-1], _limits(self._broker, record["overrides"])]

    def _check_share_partition(self, row: StateRow) -> None:
        key = (row.topic_id, row.partition)
        place = f"{row.topic}-{row.partition}"
        if key not in self._partitions:
            # The first row of a share-partition is its snapshot; what happened before it is not in the table.
            self._partitions[key] = (place, _from_snapshot(row))
            return
        share_partition = self._partitions[key][1]
        for entry in row.transitions:
            self._verification.transition_count += 1
            transition = entry.transition
            if transition.from_state is None and transition.first_offset > share_partition.next_offset:
                self._follow_log_start(row, share_partition)
            self._check_and_apply(row, share_partition, transition, entry.time_ms)
            self._pass_finished(share_partition)
        self._follow_log_start(row, share_partition)
        self._report(place, row.request_offset, _differences(row, share_partition))
        if row.record_type is RecordType.SHARE_SNAPSHOT:
            self._report(place, row.request_offset, check_state(share_partition))

    def _check_and_apply(
        self, row: StateRow, share_partition: SharePartition, record: SharePartitionRecord, now_ms: int
    ) -> None:
        highest = max(limits.delivery_count_limit for limits in self._limits)
        # What holds under any of the limits that were in force holds.
        found = min(
            (check_record(share_partition, record, Circumstances(lim, now_ms, highest)) for lim in self._limits),
            key=lambda violations: len(violations),
        )
        self._report(f"{row.topic}-{row.partition}", row.request_offset, found)
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

    def _report(self, place: str, request_offset: int, violations: Iterable[Violation]) -> None:
        self._verification.findings += [Finding(self._group_id, place, request_offset, found) for found in violations]


def _differences(row: StateRow, share_partition: SharePartition) -> list[Violation]:
    """Where a row's own words on the state after it differ from what its transitions lead to."""
    replayed: list[tuple[str, object, object]] = [
        ("start_offset", row.start_offset, share_partition.start_offset),
        ("delivery_complete_count", row.delivery_complete_count, share_partition.delivery_complete_count),
    ]
    if row.record_type is RecordType.SHARE_SNAPSHOT:
        replayed.append(("runs", [entry.run for entry in row.runs], _all_runs(share_partition)))
    return [
        Violation("row_agrees_with_its_replay", f"{column} is {written}, the replay has {found}")
        for column, written, found in replayed
        if written != found
    ]


def _from_snapshot(row: StateRow) -> SharePartition:
    return SharePartition(row.start_offset, (entry.run for entry in row.runs), row.state_epoch)


def _all_runs(share_partition: SharePartition) -> list[Run]:
    return list(share_partition.runs)


def _limits(broker: BrokerConfig, overrides: Mapping[str, str]) -> SharePartitionLimits:
    return effective_group_config(broker, overrides).share_partition_limits
