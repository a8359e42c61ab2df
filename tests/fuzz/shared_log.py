"""Several groups on one request log, in memory: the processor's own groups, timers and rows, without its loop.

Members of a `Group` speak as in the other tests of actors; whatever else is appended goes the same way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.decoding import decoded_message
from sharegroup.actor.effects import ShareSessionsCounted, Undecodable, Wake, WatchLog, WatchTopics, WriteDeadLetters
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.logs.local import LocalLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import LogRecord
from sharegroup.processor.clocks import PartitionClocks, Timers
from sharegroup.processor.commit import GroupOutput
from sharegroup.processor.groups import Groups, TakenCut
from sharegroup.processor.output import ResponseRecords
from sharegroup.processor.takeover.beginning import Beginning
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import RequestEnvelope, decoded_response, request
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import FoldedGroup, FoldedState, advance, fold_order
from sharegroup.state.schema import rows_to_table
from tests.actor.group_harness import ADMIN_REPLY_PARTITION, START_MS, Group, LogPartition, Outcome
from tests.fuzz.hostile_sender import LEADER_EPOCH
from tests.fuzz.memory import reachable_bytes

REQUESTS = "requests"
REQUEST_PARTITIONS = 2


class LiveGroups:
    """The groups of a processor whose commits are in at once.

    Args:
        broker: configuration of all groups.
        log: the log of the response topic.
    """

    def __init__(self, broker: BrokerConfig, log: LocalLog) -> None:
        config = ProcessorConfig(
            response_topic_partitions=ADMIN_REPLY_PARTITION + 1, state_table_path="state", checkpoint_path="checkpoint"
        )
        self.broker = broker
        self.log = log
        self.rows: list[StateRow] = []
        """The state table."""
        self.folded = FoldedState()
        """The state after all its rows."""
        self.failures: list[str] = []
        """Why groups were rebuilt."""
        self._response_records = ResponseRecords(log, config)
        beginning = Beginning(FoldedState(), LEADER_EPOCH, REQUEST_PARTITIONS)
        self.groups = Groups(beginning, broker, self._response_records, PartitionClocks())

    def apply(self, cut: TakenCut) -> list[GroupOutput]:
        """Apply a cut and commit its rows; groups that failed are rebuilt and are in the cut, too."""
        outputs = self.groups.apply(cut)
        self._commit(outputs)
        for rebuild in self.groups.take_new_rebuilds():
            self.failures.append(rebuild.reason)
            rebuild.rows = [row for row in self.rows if row.group_id == rebuild.group_id]
            finished = self.groups.finish_rebuild(rebuild, cut.cut_ms)
            self._commit(finished)
            outputs += finished
        return outputs

    @property
    def size_bytes(self) -> int:
        """The memory of all live groups."""
        return reachable_bytes(self.groups, besides=self._response_records)

    def _commit(self, outputs: Sequence[GroupOutput]) -> None:
        rows = [row for output in outputs for row in output.rows]
        # Rows that the table does not take would stop the processor.
        rows_to_table(rows, 0, LEADER_EPOCH)
        for row in sorted(rows, key=fold_order):
            advance(self.folded, row)
        self.rows += rows


class SharedGroup(Group):
    """A group whose messages are in the shared request log, and whose actors are among the groups there."""

    def __init__(self, log: SharedLog, group_id: str, topics: Mapping[str, tuple[str, Sequence[LogPartition]]]) -> None:
        self._shared_log = log
        super().__init__(log.live.broker, group_id, topics)

    @property
    def folded(self) -> FoldedGroup:
        """The group as its rows leave it."""
        return self._shared_log.live.folded.groups.get(self.group_id, FoldedGroup(self.group_id))

    def append(self, envelope: RequestEnvelope | bytes) -> int:
        value = envelope if isinstance(envelope, bytes) else envelope.encoded()
        return self._shared_log.append(value, partition_for(self.group_id, REQUEST_PARTITIONS))

    def settle(self) -> Outcome:
        seen = len(self.responses)
        self._shared_log.settle()
        return Outcome(responses=self.responses[seen:])

    def take(self, output: GroupOutput) -> None:
        """Take the responses of a cut, report what it watches, and write its dead letters."""
        self.responses += [decoded_response(response.value.encode()) for response in output.responses]
        for effect in output.effects:
            if isinstance(effect, WatchTopics | WatchLog | WriteDeadLetters):
                self._perform(effect, Outcome())
        self.write_dead_letters()
        self._append_internal_messages()

    def _begin(self, folded: FoldedGroup) -> None:
        """Have no actors of its own."""


class SharedLog:
    """The request log, the clock, and what came of every message.

    Args:
        broker: configuration of all groups.
        folder: an empty folder.
    """

    def __init__(self, broker: BrokerConfig, folder: Path) -> None:
        self.live = LiveGroups(broker, LocalLog(folder / "responses.db"))
        self.now_ms = START_MS
        self.records: list[LogRecord] = []
        """The request log; offsets rise through all partitions."""
        self.cuts: list[TakenCut] = []
        self.groups: dict[str, SharedGroup] = {}
        """The groups that have members and a record log."""
        self.response_counts: Counter[tuple[str, int]] = Counter()
        """(member id, correlation id) → number of responses."""
        self.outputs: dict[str, list[GroupOutput]] = {}
        """Group id → what it made of each cut; for the groups above."""
        self.undecodable: set[int] = set()
        """Offsets of messages that were counted as unreadable."""
        self.session_counts: dict[str, tuple[int, int]] = {}
        """Group id → open share sessions, and their share-partitions."""
        self.watched: defaultdict[str, set[object]] = defaultdict(set)
        """Group id → topics and partitions that it watches."""
        self._timers = Timers(lambda group_id: partition_for(group_id, REQUEST_PARTITIONS))
        self._applied = 0

    def add_group(self, group_id: str, topics: Mapping[str, tuple[str, Sequence[LogPartition]]]) -> SharedGroup:
        """Add a group that starts at the earliest offset."""
        group = SharedGroup(self, group_id, topics)
        self.groups[group_id] = group
        self.outputs[group_id] = []
        assert group.alter_config(share_auto_offset_reset="earliest") == 0
        return group

    def append(self, value: bytes | None, partition: int) -> int:
        """Append to the request log now; returns the offset."""
        offset = len(self.records)
        self.records.append(LogRecord(REQUESTS, partition, offset, self.now_ms, None, value))
        return offset

    def settle(self) -> None:
        """Apply what is in the request log until nothing more comes of it."""
        for _ in range(50):
            if self._applied == len(self.records):
                return
            taken = self.records[self._applied :]
            self._applied = len(self.records)
            for partition in range(REQUEST_PARTITIONS):
                self._apply(partition, [record for record in taken if record.partition == partition])
        raise AssertionError(f"the groups do not settle: {self.records[-1]}")

    def advance(self, duration_ms: int) -> None:
        """Let time pass; the Ticks that groups asked for come when they are due."""
        until_ms = self.now_ms + duration_ms
        while (tick_ms := self._next_tick_ms()) is not None and tick_ms <= until_ms:
            self.now_ms = max(self.now_ms, tick_ms)
            for partition in range(REQUEST_PARTITIONS):
                for group_id in self._timers.due(partition, self.now_ms):
                    tick = request(ApiKey.TICK, group_id, Tick(), leader_epoch=LEADER_EPOCH)
                    self.append(tick.encoded(), partition)
            self.settle()
        self.now_ms = until_ms

    def replayed(self, group_ids: set[str], folder: Path) -> dict[str, list[GroupOutput]]:
        """Return what groups make of the same cuts when everything else is taken out of the log."""
        alone = LiveGroups(self.live.broker, LocalLog(folder / "responses.db"))
        outputs: dict[str, list[GroupOutput]] = {group_id: [] for group_id in group_ids}
        for cut in self.cuts:
            records = [record for record in cut.records if _group_of(record) in group_ids]
            if records:
                times_ms = [record.timestamp_ms for record in records]
                for output in alone.apply(replace(cut, records=records, times_ms=times_ms)):
                    outputs[output.group_id].append(output)
        return outputs

    def _next_tick_ms(self) -> int | None:
        times_ms = [self._timers.next_ms(partition) for partition in range(REQUEST_PARTITIONS)]
        return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)

    def _apply(self, partition: int, records: Sequence[LogRecord]) -> None:
        if not records:
            return
        times_ms = [record.timestamp_ms for record in records]
        cut = TakenCut(partition, records, times_ms, records[-1].offset + 1, self.now_ms)
        self.cuts.append(cut)
        for output in self.live.apply(cut):
            self._publish(output)

    def _publish(self, output: GroupOutput) -> None:
        for published in output.responses:
            response = decoded_response(published.value.encode())
            self.response_counts[response.member_id, response.correlation_id] += 1
        for group_id, value in output.messages:
            self.append(value.encode(), partition_for(group_id, REQUEST_PARTITIONS))
        self._timers.update(effect for effect in output.effects if isinstance(effect, Wake))
        group_id = output.group_id
        for effect in output.effects:
            match effect:
                case Undecodable():
                    self.undecodable.add(effect.request_offset)
                case ShareSessionsCounted():
                    self.session_counts[group_id] = (effect.session_count, effect.share_partition_count)
                case WatchTopics():
                    self.watched[group_id] = {key for key in self.watched[group_id] if not isinstance(key, str)}
                    self.watched[group_id] |= effect.topics.keys()
                case WatchLog():
                    self.watched[group_id] -= effect.forgotten
                    self.watched[group_id] |= effect.above_offset.keys()
        if group_id in self.groups:
            self.outputs[group_id].append(output)
            self.groups[group_id].take(output)


def _group_of(record: LogRecord) -> str | None:
    message = decoded_message(record.value, record.offset, record.timestamp_ms, LEADER_EPOCH)
    return message.envelope.group_id if isinstance(message, LoggedRequest) else None
