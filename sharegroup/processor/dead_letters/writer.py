"""The dead-letter writer: appends the dead-letter records that groups request, and confirms them to each group.

Dead-letter records are written at least once: the next processor appends those again that were appended but not
confirmed when a processor stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.actor.dead_letters import all_waiting
from sharegroup.actor.effects import DeadLetters, DropDeadLetters, WriteDeadLetters
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.errors import ConfigurationError, LogError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log, NewRecord
from sharegroup.processor.commit import Commit
from sharegroup.processor.dead_letters.records import (
    MAX_BYTES,
    MAX_RECORDS,
    append_dead_letter_records,
    dead_letter_records,
    dead_letter_topic,
)
from sharegroup.processor.part import Part
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.internal_messages import DlqStatusChanged, DlqWritten, WrittenDeadLetters
from sharegroup.protocol.messages import MAX_NAME_LENGTH, Message, RequestEnvelope, request
from sharegroup.state.fold import FoldedState

logger = logging.getLogger("sharegroup.processor")

ATTEMPTS = 5
"""Failed appends after which the failure is reported to the group."""
_FIRST_BACKOFF_S = 1.0
_LATER_INTERVAL_S = 30.0


class GroupCounts(NamedTuple):
    """Counts of one group.

    Attributes:
        appends: appends to a dead-letter topic with records of the group, also those that failed.
    """

    written_records: int = 0
    appends: int = 0
    failed_appends: int = 0


@dataclass
class DeadLetterMetrics:
    """Counts, and the present failures; the writer's thread changes them, others may read them at any time.

    Attributes:
        records_without_copy: the appended records that were too large for their topic with the copy of their source.
        waiting_records: source records whose dead-letter records are not written yet.
        failures: group id → reason why its dead-letter records cannot be written, after five failed appends.
    """

    records_without_copy: int = 0
    waiting_records: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    _groups: dict[str, GroupCounts] = field(default_factory=dict)

    def groups(self) -> dict[str, GroupCounts]:
        """Return group id → its counts."""
        return dict(self._groups)

    def appended(self, records: Mapping[str, int]) -> None:
        """Count an append: group id → its records."""
        for group_id, count in records.items():
            before = self._groups.get(group_id, GroupCounts())
            self._groups[group_id] = before._replace(
                written_records=before.written_records + count, appends=before.appends + 1
            )

    def append_failed(self, group_ids: Iterable[str]) -> None:
        """Count an append with records of these groups that failed."""
        for group_id in group_ids:
            before = self._groups.get(group_id, GroupCounts())
            self._groups[group_id] = before._replace(
                appends=before.appends + 1, failed_appends=before.failed_appends + 1
            )

    def forget(self, group_id: str) -> None:
        """Drop the counts of a group that was removed."""
        self._groups.pop(group_id, None)


@dataclass(eq=False)
class _Waiting:
    """A range of offsets whose dead-letter records are not all written yet."""

    group_id: str
    dead_letters: DeadLetters
    next_offset: int
    due_s: float
    failed_attempts: int = 0

    @property
    def share_partition(self) -> tuple[str, str, int]:
        return self.group_id, self.dead_letters.topic_id, self.dead_letters.partition

    @property
    def is_done(self) -> bool:
        return self.next_offset > self.dead_letters.last_offset


class _Destination(NamedTuple):
    """The destination of one append; for a range that failed before, `alone` is its share-partition."""

    dlq_topic: str
    copies_records: bool
    alone: tuple[str, str, int] | None


@dataclass
class _Queue:
    """Waiting ranges of one group, and their dead-letter topic."""

    dlq_topic: str = ""
    copies_records: bool = False
    waiting: list[_Waiting] = field(default_factory=list)


@dataclass(frozen=True)
class _Append:
    """Dead-letter records of several ranges, of one or more groups, for one append to a dead-letter topic."""

    parts: list[tuple[_Waiting, int]]
    records: dict[int, list[NewRecord]]


class DeadLetterWriter:
    """Writes dead-letter records in a separate thread; a group whose appends fail does not delay the others.

    Args:
        log: the record log, which also has the dead-letter topics.
        on_failure: called with the error that ended the thread.
        internal_topics: topics that cannot be a dead-letter queue.
        may_create_topics: True to create missing dead-letter topics.
        clock_s: a clock in seconds that never goes back.
    """

    def __init__(
        self,
        log: Log,
        send: Callable[[list[RequestEnvelope]], None],
        on_failure: Callable[[BaseException], None],
        leader_epoch: int,
        internal_topics: Collection[str] = (),
        may_create_topics: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = DeadLetterMetrics()
        self._log = log
        self._send = send
        self._leader_epoch = leader_epoch
        self._internal_topics = internal_topics
        self._may_create_topics = may_create_topics
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = defaultdict(_Queue)
        self._unaware_groups: set[str] = set()
        """Groups that may not have heard their last status: they were quarantined, and ask again for everything."""
        self._wake = threading.Event()
        self._part = Part("dead-letters", self._run, on_failure, self._wake.set)

    def start(self) -> None:
        """Start the writer's thread."""
        self._part.start()

    def stop(self) -> None:
        """Stop the thread after the current append, and wait for it."""
        self._part.stop()

    def resume(self, folded: FoldedState, broker: BrokerConfig) -> None:
        """Queue all records that are ARCHIVING in the state table, and restore the failures that it reports.

        Args:
            folded: all groups; only read, and only in this call.
        """
        for group in folded.groups.values():
            if ActorRole.LEADER in group.failures:
                # The group cannot handle a confirmation; it requests all of its records when it is resumed.
                continue
            config = effective_group_config(broker, group.metadata.config_overrides)
            waiting = all_waiting(group.group_id, group.partitions.values(), config)
            if group.dead_letter_failure:
                self.metrics.failures[group.group_id] = group.dead_letter_failure
            if waiting.dead_letters:
                self.enqueue([waiting])
                self._unaware_groups.discard(group.group_id)
            else:
                self._send_status(group.group_id, "")

    def published(self, commit: Commit) -> None:
        """Queue the dead-letter records that the groups of a published commit request; drop those of removed groups."""
        effects = [effect for effect in commit.effects() if isinstance(effect, WriteDeadLetters | DropDeadLetters)]
        if effects:
            self.enqueue(effects)

    def enqueue(self, effects: Iterable[WriteDeadLetters | DropDeadLetters]) -> None:
        """Queue dead-letter records that groups request, or drop them.

        After a configuration change all of the group are tried at once.
        """
        now_s = self._clock_s()
        with self._lock:
            for effect in effects:
                if isinstance(effect, DropDeadLetters):
                    self._queues.pop(effect.group_id, None)
                    self.metrics.forget(effect.group_id)
                    continue
                queue = self._queues[effect.group_id]
                queue.dlq_topic, queue.copies_records = effect.dlq_topic, effect.copies_records
                if effect.replaces_waiting:
                    queue.waiting = []
                    self._unaware_groups.add(effect.group_id)
                if not effect.dead_letters:
                    for waiting in queue.waiting:
                        waiting.due_s, waiting.failed_attempts = now_s, 0
                queue.waiting += [
                    _Waiting(effect.group_id, dead_letters, dead_letters.first_offset, now_s)
                    for dead_letters in effect.dead_letters
                ]
            self._count_waiting()
        self._wake.set()

    def write_due(self) -> float | None:
        """Append all records that are due; return the seconds until the next are, None when nothing waits."""
        while due := self._due():
            # Whatever came during the last append is among them: one that fails takes seconds.
            destination = min(due, key=lambda each: (each.alone is not None, min(part.due_s for part in due[each])))
            self._write(destination, due[destination])
            self._remove_done()
        with self._lock:
            waiting_groups = {group_id for group_id, queue in self._queues.items() if queue.waiting}
            # A removed group may have failed.
            idle = (self._unaware_groups | self.metrics.failures.keys()) - waiting_groups
        for group_id in sorted(idle):
            self._send_status(group_id, "")
        with self._lock:
            next_s = min((waiting.due_s for queue in self._queues.values() for waiting in queue.waiting), default=None)
        return None if next_s is None else max(0.0, next_s - self._clock_s())

    def _run(self) -> None:
        while not self._part.is_stopping.is_set():
            pause_s = self.write_due()
            self._wake.wait(pause_s)
            self._wake.clear()

    def _due(self) -> dict[_Destination, list[_Waiting]]:
        """Return the due ranges by append: one for each topic, and one for each share-partition that failed before."""
        now_s = self._clock_s()
        due: dict[_Destination, list[_Waiting]] = defaultdict(list)
        with self._lock:
            for queue in self._queues.values():
                for waiting in queue.waiting:
                    if waiting.due_s <= now_s and not self._part.is_stopping.is_set():
                        alone = waiting.share_partition if waiting.failed_attempts else None
                        due[_Destination(queue.dlq_topic, queue.copies_records, alone)].append(waiting)
        return due

    def _write(self, destination: _Destination, due: Sequence[_Waiting]) -> None:
        try:
            topic = dead_letter_topic(self._log, destination.dlq_topic, self._internal_topics, self._may_create_topics)
            append = self._next_append(due, topic.partition_count, destination.copies_records)
            self.metrics.records_without_copy += append_dead_letter_records(self._log, topic.name, append.records)
        except (LogError, ConfigurationError) as error:
            self._retry_later(due, error)
        else:
            self._confirm(append)

    def _next_append(self, due: Sequence[_Waiting], partition_count: int, copies_records: bool) -> _Append:
        """Build the records of as many ranges as fit into one append; the rest stays due."""
        append = _Append([], defaultdict(list))
        record_count = byte_count = 0
        for waiting in due:
            records = dead_letter_records(
                self._log, waiting.group_id, waiting.dead_letters, waiting.next_offset, copies_records
            )
            append.parts.append((waiting, waiting.next_offset + len(records) - 1))
            append.records[waiting.dead_letters.partition % partition_count] += records
            record_count += len(records)
            byte_count += sum(record.size_bytes for record in records)
            if record_count >= MAX_RECORDS or byte_count >= MAX_BYTES:
                break
        return append

    def _confirm(self, append: _Append) -> None:
        """Confirm the written records to their groups, before more records are written."""
        counts: Counter[str] = Counter()
        for waiting, last_offset in append.parts:
            counts[waiting.group_id] += last_offset - waiting.next_offset + 1
        self.metrics.appended(counts)
        written: dict[str, list[WrittenDeadLetters]] = defaultdict(list)
        for waiting, last_offset in append.parts:
            written[waiting.group_id].append(
                WrittenDeadLetters(
                    topic_id=waiting.dead_letters.topic_id,
                    partition_index=waiting.dead_letters.partition,
                    first_offset=waiting.next_offset,
                    last_offset=last_offset,
                    state_epoch=waiting.dead_letters.state_epoch,
                )
            )
        self._send(
            [
                self._message(ApiKey.DLQ_WRITTEN, group_id, DlqWritten(ranges=ranges))
                for group_id, ranges in written.items()
            ]
        )
        for waiting, last_offset in append.parts:
            waiting.next_offset, waiting.failed_attempts = last_offset + 1, 0
        for group_id in written:
            self._send_status(group_id, "")

    def _retry_later(self, due: Sequence[_Waiting], error: LogError | ConfigurationError) -> None:
        group_ids = sorted({waiting.group_id for waiting in due})
        self.metrics.append_failed(group_ids)
        now_s = self._clock_s()
        for waiting in due:
            waiting.failed_attempts += 1
            waiting.due_s = now_s + _backoff_s(waiting.failed_attempts)
        for group_id in group_ids:
            logger.warning(Event("dead_letters_failed", group=group_id, reason=str(error)))
            if any(waiting.failed_attempts >= ATTEMPTS for waiting in due if waiting.group_id == group_id):
                self._send_status(group_id, str(error)[:MAX_NAME_LENGTH])

    def _send_status(self, group_id: str, failure: str) -> None:
        """Send a group's failure when it begins, ends, or changes its reason."""
        is_known = self.metrics.failures.get(group_id, "") == failure and group_id not in self._unaware_groups
        if is_known or (not failure and self._is_failing(group_id)):
            return
        self._unaware_groups.discard(group_id)
        self._send([self._message(ApiKey.DLQ_STATUS_CHANGED, group_id, DlqStatusChanged(failure=failure))])
        self.metrics.failures[group_id] = failure
        if not failure:
            del self.metrics.failures[group_id]

    def _message(self, api_key: ApiKey, group_id: str, body: Message) -> RequestEnvelope:
        return request(api_key, group_id, body, leader_epoch=self._leader_epoch)

    def _is_failing(self, group_id: str) -> bool:
        with self._lock:
            queue = self._queues.get(group_id)
            return queue is not None and any(waiting.failed_attempts >= ATTEMPTS for waiting in queue.waiting)

    def _remove_done(self) -> None:
        with self._lock:
            for group_id, queue in list(self._queues.items()):
                queue.waiting = [waiting for waiting in queue.waiting if not waiting.is_done]
                if not queue.waiting:
                    del self._queues[group_id]
            self._count_waiting()

    def _count_waiting(self) -> None:
        self.metrics.waiting_records = sum(
            waiting.dead_letters.last_offset - waiting.next_offset + 1
            for queue in self._queues.values()
            for waiting in queue.waiting
        )


def _backoff_s(failed_attempts: int) -> float:
    return _LATER_INTERVAL_S if failed_attempts >= ATTEMPTS else _FIRST_BACKOFF_S * 2 ** (failed_attempts - 1)
