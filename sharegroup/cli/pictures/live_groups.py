"""The groups as they are now, as JSON documents for the dashboard.

It reads the state table and the log, never the processor. The table stays open, and its state in memory: while the
table has no new version, a poll costs the reading of a folder; when it has one, the rows of the new commits are folded
into the state. After each poll nothing is read for four times the CPU time that it took, but for 10 s at most: under
load a dashboard takes a fifth of a core, however many browsers poll.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sharegroup.audit.timelines.record_transitions import record_transitions
from sharegroup.audit.timelines.strip import segments
from sharegroup.cli.group_view import problems, summary
from sharegroup.client.described_groups import GroupDescription, PartitionDescription, described
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.cause_rules import RETURNS
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import GroupIdNotFoundError, ShareGroupError
from sharegroup.logs.log_clock import wall_ms
from sharegroup.logs.port import Log
from sharegroup.logs.topic_offsets import TopicOffsets, topic_offsets
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import NO_COMMIT
from sharegroup.state.fold import SHARE_PARTITION_TYPES, FoldedGroup, FoldedState, advance, fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter

RATE_WINDOW_S = 10
"""The time over which rates are means, as in `sharegroup top`."""

MAX_GROUPS = 200
MAX_STRIPS = 30
MAX_LOCKS = 50
MAX_TRANSITIONS = 200

_SHORTEST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_PAUSES_PER_READ = 4
_PAUSE_AFTER_ERROR_S = 2.0
_DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_HISTORY_TYPES = SHARE_PARTITION_TYPES | {RecordType.GROUP_METADATA, RecordType.TABLE_SNAPSHOT}

Document = dict[str, Any]
_Rates = dict[str, dict[str, float]]


class LiveGroups:
    """Reads groups for browsers; any thread may call it.

    Args:
        broker: defaults and limits of all groups, as the processor has them.

    Raises:
        StateTableError: there is no state table, or it cannot be read.
    """

    def __init__(self, log: Log, state_table_path: str, broker: BrokerConfig) -> None:
        self._log = log
        self._broker = broker
        self._table = StateTableReader(state_table_path, stays_open=True)
        self._lock = threading.Lock()
        self._version = -1
        self._folder: int | None = None
        self._commit_id = NO_COMMIT
        self._state = FoldedState()
        self._offsets: TopicOffsets = {}
        self._changes: deque[tuple[int, str, Cause, int]] = deque()
        self._read_ms = 0
        self._not_before_s = 0.0
        self._error = ""
        self._read()

    def groups(self) -> Document:
        """Return all groups, each in a few numbers."""
        with self._lock:
            self._refresh()
            rates = self._rates()
            shown = sorted(self._state.groups)[:MAX_GROUPS]
            return {
                **self._head(),
                "group_count": len(self._state.groups),
                "groups": [self._summary(self._described(group_id), rates) for group_id in shown],
            }

    def group(self, group_id: str) -> Document:
        """Return one group: its members, locks, and share-partitions as strips.

        Raises:
            GroupIdNotFoundError: the state table does not have the group.
        """
        with self._lock:
            self._refresh()
            if group_id not in self._state.groups:
                raise GroupIdNotFoundError(f"Group {group_id} is not in the state table.")
            group, folded = self._described(group_id), self._state.groups[group_id]
            # Most lag first: what is left out is what needs no attention.
            by_lag = sorted(group.partitions, key=lambda each: (-(each.lag or 0), each.topic, each.partition))
            strips = sorted(by_lag[:MAX_STRIPS], key=lambda each: (each.topic, each.partition))
            return {
                **self._head(),
                **self._summary(group, self._rates()),
                "dead_letters": _dead_letters(group, folded),
                "members": [asdict(member) for member in group.members],
                "locks": [asdict(lock) for lock in group.locks[:MAX_LOCKS]],
                "lock_count": len(group.locks),
                "sinks": [asdict(sink) for sink in group.sinks],
                "partitions": [_strip(partition, folded) for partition in strips],
            }

    def history(self, group_id: str, topic: str, partition: int, offset: int) -> Document:
        """Return the transitions of one record, the last ones of very many."""
        row_filter = RowFilter(
            record_types=_HISTORY_TYPES, group_id=group_id, topic=topic, partition=partition, touching=(offset, offset)
        )
        with self._lock:
            rows = self._table.stored(row_filter)
        transitions = record_transitions(rows, topic, partition, offset)
        return {
            "group_id": group_id,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "transition_count": len(transitions),
            "transitions": [asdict(transition) for transition in transitions[-MAX_TRANSITIONS:]],
        }

    def _refresh(self) -> None:
        if time.monotonic() < self._not_before_s:
            return
        try:
            self._read()
            self._error = ""
        except ShareGroupError as error:
            # A table that is replaced can be read again later; meanwhile the old state is shown, with the reason.
            self._error = str(error)
            self._folder = None
            self._not_before_s = time.monotonic() + _PAUSE_AFTER_ERROR_S

    def _read(self) -> None:
        started_s = time.process_time()
        folder = _folder_id(self._table.path)
        if folder is None or folder != self._folder:
            # An open table does not notice that it was replaced.
            self._table = StateTableReader(self._table.path, stays_open=True)
            self._version = -1
        version = self._table.version()
        if version < self._version or self._version < 0:
            self._begin()
        elif version > self._version:
            self._advance()
        self._version, self._folder = version, folder
        topics = {topic.topic for group in self._state.groups.values() for topic in group.metadata.topics.values()}
        self._offsets = topic_offsets(self._log, topics)
        self._read_ms = wall_ms()
        pause_s = _PAUSES_PER_READ * (time.process_time() - started_s)
        self._not_before_s = time.monotonic() + min(max(pause_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)

    def _begin(self) -> None:
        """Fold the table, as a recovery does."""
        recovery = self._table.recovery()
        self._state = fold(recovery.rows)
        self._commit_id = recovery.last_marker.commit_id if recovery.last_marker is not None else NO_COMMIT
        self._changes.clear()
        for row in self._table.stored(RowFilter(record_types=SHARE_PARTITION_TYPES, since_ms=_window_start_ms())):
            if row.commit_id <= self._commit_id:
                self._note(row)

    def _advance(self) -> None:
        """Fold the rows of the commits since the last poll."""
        types = SHARE_PARTITION_TYPES | {RecordType.GROUP_METADATA, RecordType.GROUP_STATUS}
        for row in self._table.stored(RowFilter(record_types=types, after_commit_id=self._commit_id)):
            advance(self._state, row)
            self._note(row)
            self._commit_id = max(self._commit_id, row.commit_id)

    def _note(self, row: StateRow) -> None:
        for entry in row.transitions:
            size = entry.last_offset - entry.first_offset + 1
            self._changes.append((entry.time_ms, row.group_id, entry.cause, size))

    def _head(self) -> Document:
        return {"version": self._version, "read_ms": self._read_ms, "error": self._error}

    def _described(self, group_id: str) -> GroupDescription:
        return described(self._state.groups[group_id], self._offsets, self._broker, wall_ms())

    def _summary(self, group: GroupDescription, rates: _Rates) -> Document:
        return {
            **summary(group),
            "problems": list(problems(group)),
            "rates": rates.get(group.group_id, _rates_of(Counter())),
        }

    def _rates(self) -> _Rates:
        since_ms = _window_start_ms()
        while self._changes and self._changes[0][0] < since_ms:
            self._changes.popleft()
        counts: dict[str, Counter[Cause]] = {}
        for time_ms, group_id, cause, size in self._changes:
            if time_ms >= since_ms:
                counts.setdefault(group_id, Counter())[cause] += size
        return {group_id: _rates_of(of_group) for group_id, of_group in counts.items()}


def _folder_id(path: str) -> int | None:
    """Return the identity of the table's log folder; None when there is none, or it is no local one."""
    try:
        return Path(path, "_delta_log").stat().st_ino
    except OSError:
        return None


def _window_start_ms() -> int:
    return wall_ms() - RATE_WINDOW_S * 1_000


def _rates_of(counts: Mapping[Cause, int]) -> dict[str, float]:
    return {
        "acquired_per_s": counts.get(Cause.ACQUIRE, 0) / RATE_WINDOW_S,
        "accepted_per_s": counts.get(Cause.ACCEPT, 0) / RATE_WINDOW_S,
        "rejected_per_s": counts.get(Cause.REJECT, 0) / RATE_WINDOW_S,
        "returned_per_s": sum(counts.get(cause, 0) for cause in RETURNS) / RATE_WINDOW_S,
    }


def _dead_letters(group: GroupDescription, folded: FoldedGroup) -> Document:
    archiving = (
        run.size
        for partition in folded.partitions.values()
        for run in partition.share_partition.runs
        if run.state is RecordState.ARCHIVING
    )
    topics = [config.value for config in group.config if config.key == _DEAD_LETTER_TOPIC]
    return {"topic": "".join(topics), "waiting_count": sum(archiving), "failure": group.dead_letter_failure}


def _strip(partition: PartitionDescription, group: FoldedGroup) -> Document:
    return {**asdict(partition), "segments": [asdict(segment) for segment in _segments(partition, group)]}


def _segments(partition: PartitionDescription, group: FoldedGroup) -> Iterator[Any]:
    folded = group.partitions.get((partition.topic_id, partition.partition))
    if folded is not None:
        engine = folded.share_partition
        yield from segments(list(engine.runs), engine.next_offset, partition.end_offset)
