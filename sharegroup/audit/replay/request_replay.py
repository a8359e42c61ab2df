"""Replay of the request log, cut as the markers cut it, through the actors that applied it.

Each leader epoch begins with the folded state at the last marker before it, without share sessions and parked fetches;
the time of its partitions begins at its announcement. From there on an actor's output depends on the messages and on
the cuts with their times alone, and the markers have both. So a replay needs no clock, and makes the same rows and
responses, commit by commit.

A stretch cannot be replayed where its messages were deleted, or a part of it is not in the log (`Gap`): the share
sessions that they opened are not known, so the next takeover is the next beginning. The same holds for a group from
the moment on at which it was rebuilt, after its actors had failed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from sharegroup.audit.replay.request_log import RequestLog
from sharegroup.audit.verification.verify_table import Progress
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.model import attribute_name
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import OffsetOutOfRangeError, ShareGroupError, StateTableError
from sharegroup.logs.port import Log, LogRecord
from sharegroup.processor.clocks import PartitionClocks, started_clocks
from sharegroup.processor.commit import GroupOutput
from sharegroup.processor.groups import Groups, TakenCut
from sharegroup.processor.output import ResponseRecords
from sharegroup.processor.takeover.beginning import ALL_GROUPS, Beginning, ServedGroups
from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.row_payloads import EarlierState
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedState, advance, fold_order
from sharegroup.state.reader import StateTableReader
from sharegroup.state.schema import decoded
from sharegroup.state.table_scan import TableScan, commits_of


class CutEditor(Protocol):
    """Changes what is replayed."""

    def broker(self, recorded: BrokerConfig) -> BrokerConfig:
        """Return the defaults and bounds of the replay."""
        ...

    def begin(self, state: FoldedState, leader_epoch: int, partition_count: int) -> None:
        """Change the state with which a leader epoch begins."""
        ...

    def edited(self, cut: TakenCut, state: FoldedState) -> Iterator[TakenCut]:
        """Yield the cuts to be applied instead of one; `state` follows them."""
        ...

    def applied(self, outputs: Sequence[GroupOutput]) -> None:
        """Take the output of a cut before the next one is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Gap:
    """Commits that cannot be replayed.

    Attributes:
        first_commit_id: the first of them.
        last_commit_id: the last of them.
        group_id: the group that it concerns; "" for all.
    """

    first_commit_id: int
    last_commit_id: int
    group_id: str
    reason: str

    def __str__(self) -> str:
        of_group = f" of group {self.group_id}" if self.group_id else ""
        return f"commits {self.first_commit_id} to {self.last_commit_id}{of_group}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RecordedCommit:
    """A commit as the table has it.

    Attributes:
        rows: rows of the commit besides the marker, in fold order.
    """

    marker: StateRow
    payload: CommitMarkerPayload
    rows: Sequence[StateRow]


@dataclass(frozen=True, slots=True)
class ReplayedCommit:
    """A commit and its replay.

    Attributes:
        outputs: what the actors made of its cuts, in order.
        left_out: groups that cannot be replayed since a commit of this leader epoch.
        group_epoch_floor: the highest group epoch of any removed group, by the replay.
        message_times_ms: request partition → time of its last applied message, by the replay.
    """

    recorded: RecordedCommit
    outputs: Sequence[GroupOutput]
    left_out: frozenset[str]
    message_count: int
    group_epoch_floor: int
    message_times_ms: Mapping[int, int]


@dataclass
class _Epoch:
    """The actors of one leader epoch, and how far they are."""

    groups: Groups
    clocks: PartitionClocks
    ends: dict[int, int]
    left_out: set[str] = field(default_factory=set)


class RequestReplay:
    """Replays a table's request log.

    Args:
        log: the log with the request topic.
        config: names and partition counts of the topics.
        broker: defaults and bounds that were in force, for processors whose Fence does not have them.
        editor: changes what is replayed; None replays it as it was.

    A replay with changes continues over takeovers with its own state; else each takeover begins with the recorded one,
    as it does after a gap.
    """

    def __init__(
        self,
        path: str,
        log: Log,
        config: ProcessorConfig,
        broker: BrokerConfig,
        editor: CutEditor | None = None,
        progress: Progress = lambda _: None,
    ) -> None:
        self.gaps: list[Gap] = []
        self._scan = TableScan(path)
        reader = StateTableReader(path)
        self._fences = {row.leader_epoch: row.payload for row in reader.rows([RecordType.FENCE])}
        self._state_id = reader.state_id()
        counts = {
            attribute_name(key): value
            for payload in self._fences.values()
            for key in ("request.topic.partitions", "response.topic.partitions")
            if (value := payload.get(key)) is not None
        }
        self._config = config.model_copy(update=counts)
        self._broker = broker
        self._responses = ResponseRecords(log, self._config)
        self._requests = RequestLog(log, config.request_topic_name)
        self._editor = editor
        self._progress = progress
        self._state = FoldedState()
        self._own_state: FoldedState | None = None
        self._last: RecordedCommit | None = None
        self._epoch: _Epoch | None = None
        self._leader_epoch = -1

    def commits(self) -> Iterator[ReplayedCommit]:
        """Yield each commit that can be replayed; the others are in `gaps` afterwards."""
        for rows in self._recorded():
            marker = next((row for row in rows if row.record_type is RecordType.COMMIT_MARKER), None)
            others = [row for row in rows if row is not marker and row.record_type is not RecordType.TABLE_SNAPSHOT]
            if marker is None:
                # A pruned table begins with a table snapshot; later ones repeat the state.
                if self._last is None:
                    _advance(self._state, sorted(rows, key=fold_order))
                    self._note_snapshot(rows)
                continue
            recorded = RecordedCommit(
                marker, CommitMarkerPayload.model_validate(marker.payload), sorted(others, key=fold_order)
            )
            if marker.leader_epoch != self._leader_epoch:
                self._begin_epoch(recorded)
            replayed = self._replayed(recorded)
            _advance(self._state, recorded.rows)
            self._last = recorded
            self._progress((marker.commit_id + 1) / ((self._scan.last_commit_id or 0) + 1))
            if replayed is not None:
                yield replayed

    def _recorded(self) -> Iterator[list[StateRow]]:
        for piece in commits_of(self._scan):
            for _, of_commit in groupby(decoded(piece), lambda row: row.commit_id):
                yield list(of_commit)

    def _note_snapshot(self, rows: Sequence[StateRow]) -> None:
        for row in rows:
            if not row.group_id and "marker" in row.payload:
                payload = CommitMarkerPayload.model_validate(row.payload["marker"])
                marker = row.model_copy(update={"leader_epoch": row.payload["leader_epoch"]})
                self._last = RecordedCommit(marker, payload, ())
                # Where its sessions stood is not known: the next leader epoch is the first that can be replayed.
                self._leader_epoch = marker.leader_epoch

    def _begin_epoch(self, first: RecordedCommit) -> None:
        """Begin as a takeover does, with the state at the last marker (`processor/takeover/takeover.py`)."""
        epoch = self._leader_epoch = first.marker.leader_epoch
        before = self._last.payload if self._last is not None else None
        ends = {p: before.end_offsets.get(p, 0) if before else 0 for p in self._requests.partitions}
        stamps_ms: dict[int, int] = {}
        announced: dict[int, int] = {}
        for partition, end in ends.items():
            record = self._requests.announcement(partition, end, epoch)
            if record is None:
                self._epoch = None
                self._note_gap(first, f"the announcement of leader epoch {epoch} is not in the request log")
                return
            stamps_ms[partition], announced[partition] = record.timestamp_ms, record.offset
        if self._editor is not None:
            self._own_state = self._own_state if self._epoch is not None else None
            self._own_state = self._own_state or copy.deepcopy(self._state)
            self._editor.begin(self._own_state, epoch, self._config.request_topic_partitions)
        state = copy.deepcopy(self._own_state or self._state)
        fence = self._fences.get(epoch, {})
        clocks = started_clocks(stamps_ms, before, lambda: 0.0)
        beginning = Beginning(
            state,
            epoch,
            self._config.request_topic_partitions,
            before.group_epoch_floor if before else 0,
            before.attempted_offset if before else None,
            fence.get("state_id") or self._state_id,
            announced,
            ServedGroups(fence.get("group_pattern", ALL_GROUPS)),
            fence.get("host", ""),
            tuple(EarlierState.model_validate(fields) for fields in fence.get("earlier_states", ())),
        )
        groups = Groups(beginning, self._broker_of(epoch), self._responses, clocks)
        self._epoch = _Epoch(groups, clocks, ends)
        for group_id in before.unapplied_groups if before else ():
            self._leave_out(self._epoch, group_id, first, "it was being rebuilt when the processor took over")

    def _broker_of(self, leader_epoch: int) -> BrokerConfig:
        """Return the defaults and bounds of a processor, with the editor's changes."""
        fence = self._fences.get(leader_epoch, {})
        recorded = fence.get("broker")
        broker = self._broker if recorded is None else BrokerConfig.from_mapping(recorded)
        return self._editor.broker(broker) if self._editor is not None else broker

    def _replayed(self, recorded: RecordedCommit) -> ReplayedCommit | None:
        epoch = self._epoch
        if epoch is None:
            self._extend_gap(recorded)
            return None
        for group_id in (*recorded.payload.unapplied_groups, *(c.group_id for c in recorded.payload.group_cuts)):
            self._leave_out(epoch, group_id, recorded, "its actors failed, and it was rebuilt")
        outputs: list[GroupOutput] = []
        count = 0
        try:
            for cut in recorded.payload.cuts:
                taken = self._taken(epoch, cut)
                count += len(taken.records)
                outputs += self._applied(epoch, taken)
                epoch.clocks.reach(cut.partition, taken.times_ms[-1])
        except ShareGroupError as error:
            self._epoch = None
            self._note_gap(recorded, error.message)
            return None
        for rebuild in epoch.groups.take_new_rebuilds():
            self._leave_out(epoch, rebuild.group_id, recorded, f"its replay failed: {rebuild.reason}")
        return ReplayedCommit(
            recorded,
            outputs,
            frozenset(epoch.left_out),
            count,
            epoch.groups.group_epoch_floor,
            epoch.clocks.message_times_ms,
        )

    def _applied(self, epoch: _Epoch, taken: TakenCut) -> list[GroupOutput]:
        if self._editor is None or self._own_state is None:
            return epoch.groups.apply(taken)
        outputs: list[GroupOutput] = []
        for cut in self._editor.edited(taken, self._own_state):
            of_cut = epoch.groups.apply(cut)
            _advance(self._own_state, [row for output in of_cut for row in output.rows])
            self._editor.applied(of_cut)
            outputs += of_cut
        return outputs

    def _taken(self, epoch: _Epoch, cut: Cut) -> TakenCut:
        start = epoch.ends[cut.partition]
        records: Sequence[LogRecord] = self._requests.cut(cut.partition, start, cut.end_offset)
        if not records:
            raise OffsetOutOfRangeError(
                f"Request partition {cut.partition} has no messages from {start} to {cut.end_offset - 1} any more."
            )
        epoch.ends[cut.partition] = cut.end_offset
        times_ms = epoch.clocks.append_times_ms(cut.partition, records)
        return TakenCut(cut.partition, records, times_ms, cut.end_offset, cut.time_ms)

    def _leave_out(self, epoch: _Epoch, group_id: str, recorded: RecordedCommit, reason: str) -> None:
        if group_id not in epoch.left_out:
            epoch.left_out.add(group_id)
            self.gaps.append(Gap(recorded.marker.commit_id, recorded.marker.commit_id, group_id, reason))

    def _note_gap(self, recorded: RecordedCommit, reason: str) -> None:
        self.gaps.append(Gap(recorded.marker.commit_id, recorded.marker.commit_id, "", reason))

    def _extend_gap(self, recorded: RecordedCommit) -> None:
        commit_id = recorded.marker.commit_id
        if self.gaps and not self.gaps[-1].group_id:
            self.gaps[-1] = Gap(self.gaps[-1].first_commit_id, commit_id, "", self.gaps[-1].reason)
        else:
            self._note_gap(recorded, "the table begins with a snapshot, which has no share sessions")


def _advance(state: FoldedState, rows: Iterable[StateRow]) -> None:
    for row in rows:
        if row.group_id:
            # `verify` reports a row that does not fit; what follows from it differs.
            with suppress(StateTableError):
                advance(state, row)
