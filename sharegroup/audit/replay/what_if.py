"""`what-if`: the request log, replayed under other limits.

The replay is an open loop: every request comes at the time at which it came, since what a member would have done
instead is not known. An acknowledgement applies where its member holds the record in the replay. All other acknowledged
records are undecided, and their share says how far the figures can be trusted.

A lock that ends at another time than it did is ended by a Tick of the replay, where no message of the log comes soon.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharegroup.actor.effects import Wake
from sharegroup.audit.history.extent import no_commit
from sharegroup.audit.replay.delivery_figures import DeliveryFigures
from sharegroup.audit.replay.request_replay import CutEditor, Gap, RequestReplay
from sharegroup.audit.verification.verify_table import Progress
from sharegroup.config.broker import DELIVERY_LIMIT, LOCK_DURATION, RECORD_LOCKS, BrokerConfig, LimitedSetting
from sharegroup.config.group import GroupConfig
from sharegroup.config.model import attribute_name
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.core.cause_rules import ACKNOWLEDGE_CAUSE
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.errors import ConfigurationError, GroupIdNotFoundError, PointOutsideHistoryError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, LogRecord
from sharegroup.processor.clocks import Timers
from sharegroup.processor.commit import GroupOutput
from sharegroup.processor.groups import TakenCut
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import request
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import FoldedState
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter

LIMITS: Mapping[str, LimitedSetting] = {
    setting.group_key: setting for setting in (LOCK_DURATION, DELIVERY_LIMIT, RECORD_LOCKS)
}
"""Group key → the limit that a replay can change."""

_TICK_LATENESS_MS = 250
"""A Tick of the processor is in the log by then; where none is, nothing had been due in the recorded run."""

_ACKNOWLEDGING = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)


@dataclass
class WhatIf:
    """The result of a replay under other limits.

    Attributes:
        limits: group key → value in the replay.
        message_count: messages of the request log in them.
        recorded: figures of these commits as they are in the table.
        replayed: figures of their replay.
        acknowledged_count: records that were acknowledged, each acknowledgement counted.
        undecided_count: those of them that their member does not hold in the replay.
        gaps: commits that could not be replayed.
    """

    limits: Mapping[str, int]
    commit_count: int = 0
    message_count: int = 0
    recorded: DeliveryFigures = field(default_factory=DeliveryFigures)
    replayed: DeliveryFigures = field(default_factory=DeliveryFigures)
    acknowledged_count: int = 0
    undecided_count: int = 0
    gaps: list[Gap] = field(default_factory=list)

    @property
    def undecided_share(self) -> float:
        """The share of undecided acknowledgements, from 0 to 1."""
        return self.undecided_count / self.acknowledged_count if self.acknowledged_count else 0.0


def checked_limits(pairs: Mapping[str, str]) -> dict[str, int]:
    """Return limits as numbers.

    Args:
        pairs: group key → value.

    Raises:
        ConfigurationError: a key is no limit that a replay can change, or a value is outside of Kafka's bounds.
    """
    for key in pairs:
        if key not in LIMITS:
            raise ConfigurationError(f"{key} is no limit that a replay can change.", f"Change {', '.join(LIMITS)}.")
    config = GroupConfig.from_mapping(pairs)
    return {key: config.value(key) for key in pairs}


def what_if(
    path: str,
    log: Log,
    config: ProcessorConfig,
    broker: BrokerConfig,
    limits: Mapping[str, int],
    group_id: str | None = None,
    progress: Progress = lambda _: None,
) -> WhatIf:
    """Replay the request log under other limits.

    Args:
        log: the log with the request topic.
        config: names and partition counts of the topics.
        broker: defaults and bounds that were in force.
        limits: group key → value; see `LIMITS`.
        group_id: only the figures of this group; None for all.

    Raises:
        GroupIdNotFoundError: there was never such a group.
        PointOutsideHistoryError: the table has no commit, or none can be replayed.
        StateTableError: there is no state table, or it cannot be read.
    """
    if group_id is not None and not len(StateTableReader(path).stored(RowFilter(group_id=group_id))):
        raise GroupIdNotFoundError(f"Group {group_id} is not in the state table.", "Check its name.")
    result = WhatIf(limits)
    editor = _OtherLimits(limits)
    replay = RequestReplay(path, log, config, broker, editor, progress)
    gap_count = 0
    for commit in replay.commits():
        if len(replay.gaps) > gap_count:
            gap_count = len(replay.gaps)
            result.recorded.forget_locks()
            result.replayed.forget_locks()
        result.commit_count += 1
        result.message_count += commit.message_count
        recorded = _of(commit.recorded.rows, group_id, commit.left_out)
        replayed = _of((row for output in commit.outputs for row in output.rows), group_id, commit.left_out)
        for figures, rows in ((result.recorded, recorded), (result.replayed, replayed)):
            for row in rows:
                figures.apply(row)
        acknowledged = _acknowledged(recorded)
        result.acknowledged_count += sum(last - first + 1 for ranges in acknowledged.values() for first, last in ranges)
        result.undecided_count += _missing(acknowledged, _acknowledged(replayed))
    result.gaps = list(replay.gaps)
    if not result.commit_count:
        raise _nothing_replayed(result.gaps)
    return result


def _nothing_replayed(gaps: Sequence[Gap]) -> PointOutsideHistoryError:
    if not gaps:
        return no_commit()
    reasons = "; ".join(str(gap) for gap in gaps)
    return PointOutsideHistoryError(
        f"No commit can be replayed: {reasons}.",
        "Figures under the recorded limits need no request log: see sharegroup audit stats.",
    )


def _with_limits(broker: BrokerConfig, limits: Mapping[str, int]) -> BrokerConfig:
    """Return the broker's configuration with the limits as defaults that no bound changes."""
    changes: dict[str, int] = {}
    for key, value in limits.items():
        setting = LIMITS[key]
        changes[attribute_name(setting.default_key)] = value
        changes[attribute_name(setting.min_key)] = min(value, broker.value(setting.min_key))
        changes[attribute_name(setting.max_key)] = max(value, broker.value(setting.max_key))
    return broker.model_copy(update=changes)


class _OtherLimits(CutEditor):
    """Lets groups have the limits of the replay, and members acknowledge what they hold in it.

    Args:
        limits: group key → value.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._timers = Timers(lambda _: 0)
        self._leader_epoch = -1

    def broker(self, recorded: BrokerConfig) -> BrokerConfig:
        """Return the broker's configuration with the limits as defaults."""
        return _with_limits(recorded, self._limits)

    def begin(self, state: FoldedState, leader_epoch: int, partition_count: int) -> None:
        """Take the limits of the replay from the groups' own settings: the broker's defaults have them."""
        self._timers = Timers(lambda group_id: partition_for(group_id, partition_count))
        self._leader_epoch = leader_epoch
        for group in state.groups.values():
            group.metadata.config_overrides = self._without_limits(group.metadata.config_overrides)

    def edited(self, cut: TakenCut, state: FoldedState) -> Iterator[TakenCut]:
        """Yield Ticks that are due before the cut, then the cut with what its members can acknowledge."""
        timers = self._timers
        latest_ms = cut.times_ms[0] - _TICK_LATENESS_MS
        while (at_ms := timers.next_ms(cut.partition)) is not None and at_ms <= latest_ms:
            ticks = [self._tick(cut, group_id, at_ms) for group_id in timers.due(cut.partition, at_ms)]
            yield TakenCut(cut.partition, ticks, [at_ms] * len(ticks), cut.records[0].offset, at_ms)
        records = [self._edited(r, t, state) for r, t in zip(cut.records, cut.times_ms, strict=True)]
        yield TakenCut(cut.partition, records, cut.times_ms, cut.end_offset, cut.cut_ms)

    def applied(self, outputs: Sequence[GroupOutput]) -> None:
        """Take the wake-up times of the actors."""
        for output in outputs:
            self._timers.update(effect for effect in output.effects if isinstance(effect, Wake))

    def _tick(self, cut: TakenCut, group_id: str, at_ms: int) -> LogRecord:
        # With the processor's own epoch it would measure the lead of the partition's time, as with the lowest stamp.
        envelope = request(ApiKey.TICK, group_id, Tick(time_ms=at_ms), leader_epoch=self._leader_epoch + 1)
        first = cut.records[0]
        return LogRecord(first.topic, cut.partition, first.offset - 1, 0, group_id.encode(), envelope.encoded())

    def _edited(self, record: LogRecord, time_ms: int, state: FoldedState) -> LogRecord:
        try:
            fields = json.loads(record.value or b"")
            api_key, body = fields["api_key"], fields["body"]
            if api_key == ApiKey.SHARE_GROUP_CONFIG_CHANGED:
                body["overrides"] = self._without_limits(body["overrides"])
            elif api_key in _ACKNOWLEDGING:
                if not _hold_back(fields, time_ms, state):
                    return record
            else:
                return record
            return record._replace(value=json.dumps(fields).encode())
        except (ValueError, TypeError, KeyError, AttributeError):
            # What is no message gets its response, or is counted, as it was.
            return record

    def _without_limits(self, overrides: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in overrides.items() if key not in self._limits}


def _hold_back(fields: dict[str, Any], time_ms: int, state: FoldedState) -> bool:
    """Remove acknowledgements of records that the member does not hold; return False if there were none at all."""
    group = state.groups.get(fields["group_id"])
    has_any = False
    for topic in fields["body"].get("topics", ()):
        for partition in topic.get("partitions", ()):
            batches = partition.get("acknowledgement_batches")
            if not batches:
                continue
            has_any = True
            folded = group.partitions.get((topic["topic_id"], partition["partition_index"])) if group else None
            held: list[dict[str, Any]] = []
            for batch in batches:
                first, last = batch["first_offset"], batch["last_offset"]
                runs = folded.share_partition.runs.overlapping(first, last) if folded is not None else []
                for run in runs:
                    if _is_held(run, fields["member_id"], time_ms):
                        held.append(_part(batch, run))
            partition["acknowledgement_batches"] = held
    return has_any


def _is_held(run: Run, member_id: str, time_ms: int) -> bool:
    return run.state is RecordState.ACQUIRED and run.member_id == member_id and run.deadline_ms > time_ms


def _part(batch: Mapping[str, Any], run: Run) -> dict[str, Any]:
    first, last = max(batch["first_offset"], run.first_offset), min(batch["last_offset"], run.last_offset)
    types = batch["acknowledge_types"]
    if len(types) > 1:
        types = types[first - batch["first_offset"] : last - batch["first_offset"] + 1]
    return {**batch, "first_offset": first, "last_offset": last, "acknowledge_types": types}


def _of(rows: Iterable[StateRow], group_id: str | None, left_out: frozenset[str]) -> list[StateRow]:
    return [row for row in rows if row.group_id not in left_out and group_id in (None, row.group_id)]


_Acknowledgement = tuple[str, str, int, int, str]


def _acknowledged(rows: Iterable[StateRow]) -> dict[_Acknowledgement, list[tuple[int, int]]]:
    """Return the ranges that each message acknowledged: group, topic id, partition, message, cause → ranges."""
    ranges: dict[_Acknowledgement, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        for entry in row.transitions:
            if entry.cause in ACKNOWLEDGE_CAUSE.values():
                key = row.group_id, row.topic_id, row.partition, entry.request_offset, entry.cause.value
                ranges[key].append((entry.first_offset, entry.last_offset))
    return ranges


def _missing(
    recorded: Mapping[_Acknowledgement, list[tuple[int, int]]],
    replayed: Mapping[_Acknowledgement, list[tuple[int, int]]],
) -> int:
    """Count the records of the first that are not in the second."""
    missing = 0
    for key, ranges in recorded.items():
        others = replayed.get(key, ())
        for first, last in ranges:
            common = sum(max(0, min(last, b) - max(first, a) + 1) for a, b in others)
            missing += last - first + 1 - common
    return missing
