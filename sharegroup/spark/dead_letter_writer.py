"""The dead-letter writer: appends the letters that the groups ask for, and tells each group which are written.

Letters are at least once: what was appended, but not confirmed when a processor stopped, is appended again by the next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.actor.dead_letters import all_waiting
from sharegroup.actor.effects import DeadLetters, WriteDeadLetters
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.errors import ConfigurationError, LogError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log, NewRecord
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.dead_letters import DlqStatusChanged, DlqWritten, WrittenDeadLetters
from sharegroup.protocol.messages import MAX_NAME_LENGTH, RequestEnvelope, request
from sharegroup.spark.dead_letter_append import append_letters
from sharegroup.spark.dead_letter_records import MAX_BYTES, MAX_RECORDS, dead_letter_records
from sharegroup.spark.dead_letter_topic import dead_letter_topic
from sharegroup.state.fold import FoldedState

logger = logging.getLogger("sharegroup.spark.processor")

ATTEMPTS = 5
"""Appends that may fail before the group is told."""
_FIRST_BACKOFF_S = 1.0
_LATER_INTERVAL_S = 30.0


@dataclass
class DeadLetterMetrics:
    """Counts, and what is wrong now.

    Attributes:
        written_letters: letters that were appended.
        letters_without_copy: those of them that were too large for their topic with the copy of their record.
        appends: appends to a dead-letter topic, each of the letters of one or more groups.
        failed_appends: tries that failed.
        waiting_records: records whose letters are not written yet.
        failures: group id → why its letters cannot be written, once it was tried five times.
    """

    written_letters: int = 0
    letters_without_copy: int = 0
    appends: int = 0
    failed_appends: int = 0
    waiting_records: int = 0
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class _Waiting:
    """Letters of one range of offsets that are not all written yet."""

    group_id: str
    letters: DeadLetters
    next_offset: int
    due_s: float
    failed_attempts: int = 0

    @property
    def share_partition(self) -> tuple[str, str, int]:
        return self.group_id, self.letters.topic_id, self.letters.partition

    @property
    def is_done(self) -> bool:
        return self.next_offset > self.letters.last_offset


class _Destination(NamedTuple):
    """What letters of one append have in common; what failed before goes by its share-partition."""

    dlq_topic: str
    copies_records: bool
    alone: tuple[str, str, int] | None


@dataclass
class _Queue:
    """What waits of one group, and where it goes."""

    dlq_topic: str = ""
    copies_records: bool = False
    waiting: list[_Waiting] = field(default_factory=list)


@dataclass(frozen=True)
class _Append:
    """Letters of several ranges, of one or more groups, for one append to a dead-letter topic."""

    parts: list[tuple[_Waiting, int]]
    records: dict[int, list[NewRecord]]


class DeadLetterWriter:
    """Writes dead letters in a thread of its own; a group whose letters fail holds up no other.

    Args:
        log: the record log, in which the dead-letter topics are, too.
        send: appends messages to the request log.
        on_failure: called with what ended the thread, when it was not `stop`.
        internal_topics: topics that are nobody's dead-letter queue.
        may_create_topics: whether a missing dead-letter topic is created.
        clock_s: a clock in seconds that never goes back.
    """

    def __init__(
        self,
        log: Log,
        send: Callable[[list[RequestEnvelope]], None],
        on_failure: Callable[[BaseException], None],
        internal_topics: Collection[str] = (),
        may_create_topics: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = DeadLetterMetrics()
        self._log = log
        self._send = send
        self._on_failure = on_failure
        self._internal_topics = internal_topics
        self._may_create_topics = may_create_topics
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = defaultdict(_Queue)
        self._is_stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sharegroup-dead-letters", daemon=True)

    def start(self) -> None:
        """Start the thread that writes."""
        self._thread.start()

    def stop(self) -> None:
        """Let the append at hand end, stop the thread and wait for it."""
        self._is_stopped = True
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def resume(self, folded: FoldedState, broker: BrokerConfig) -> None:
        """Take over all that is ARCHIVING in the state table, and what is told there of letters that failed."""
        for group in folded.groups.values():
            if ActorRole.LEADER in group.failures:
                # It does not hear which letters are written; it asks for all of them when it is resumed.
                continue
            config = effective_group_config(broker, group.metadata.config_overrides)
            waiting = all_waiting(group.group_id, group.partitions.values(), config)
            if group.dead_letter_failure:
                self.metrics.failures[group.group_id] = group.dead_letter_failure
            if waiting.letters:
                self.enqueue([waiting])
            else:
                self._tell_status(group.group_id, "")

    def enqueue(self, wishes: Iterable[WriteDeadLetters]) -> None:
        """Take in what the groups want written; what a change of configuration may have mended is tried at once."""
        now_s = self._clock_s()
        with self._lock:
            for wish in wishes:
                queue = self._queues[wish.group_id]
                queue.dlq_topic, queue.copies_records = wish.dlq_topic, wish.copies_records
                if wish.replaces_waiting:
                    queue.waiting = []
                if not wish.letters:
                    for waiting in queue.waiting:
                        waiting.due_s, waiting.failed_attempts = now_s, 0
                queue.waiting += [_Waiting(wish.group_id, found, found.first_offset, now_s) for found in wish.letters]
            self._count_waiting()
        self._wake.set()

    def write_due(self) -> float | None:
        """Append all letters that are due; returns in how many seconds the next are, None when no letters wait."""
        while due := self._due():
            for destination, parts in due.items():
                self._write(destination, parts)
            self._forget_done()
        with self._lock:
            next_s = min((found.due_s for queue in self._queues.values() for found in queue.waiting), default=None)
        return None if next_s is None else max(0.0, next_s - self._clock_s())

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                pause_s = self.write_due()
                self._wake.wait(pause_s)
                self._wake.clear()
        except BaseException as failure:
            self._on_failure(failure)

    def _due(self) -> dict[_Destination, list[_Waiting]]:
        """What is due, by what goes into one append: of all groups of a topic, but what failed by share-partition."""
        now_s = self._clock_s()
        due: dict[_Destination, list[_Waiting]] = defaultdict(list)
        with self._lock:
            for queue in self._queues.values():
                for found in queue.waiting:
                    if found.due_s <= now_s and not self._is_stopped:
                        alone = found.share_partition if found.failed_attempts else None
                        due[_Destination(queue.dlq_topic, queue.copies_records, alone)].append(found)
        return due

    def _write(self, destination: _Destination, due: Sequence[_Waiting]) -> None:
        try:
            topic = dead_letter_topic(self._log, destination.dlq_topic, self._internal_topics, self._may_create_topics)
            append = self._next_append(due, topic.partition_count, destination.copies_records)
            self.metrics.letters_without_copy += append_letters(self._log, topic.name, append.records)
        except (LogError, ConfigurationError) as error:
            self._failed(due, error)
        else:
            self._confirm(append)

    def _next_append(self, due: Sequence[_Waiting], partition_count: int, copies_records: bool) -> _Append:
        """The letters of as many ranges as one append takes; the rest stays due."""
        append = _Append([], defaultdict(list))
        record_count = byte_count = 0
        for waiting in due:
            made = dead_letter_records(
                self._log, waiting.group_id, waiting.letters, waiting.next_offset, copies_records
            )
            append.parts.append((waiting, made.last_offset))
            append.records[waiting.letters.partition % partition_count] += made.records
            record_count += len(made.records)
            byte_count += sum(len(record.key or b"") + len(record.value or b"") for record in made.records)
            if record_count >= MAX_RECORDS or byte_count >= MAX_BYTES:
                break
        return append

    def _confirm(self, append: _Append) -> None:
        """Tell the groups which letters are written, before anything else is written."""
        self.metrics.appends += 1
        self.metrics.written_letters += sum(len(records) for records in append.records.values())
        written: dict[str, list[WrittenDeadLetters]] = defaultdict(list)
        for waiting, last_offset in append.parts:
            written[waiting.group_id].append(
                WrittenDeadLetters(
                    topic_id=waiting.letters.topic_id,
                    partition_index=waiting.letters.partition,
                    first_offset=waiting.next_offset,
                    last_offset=last_offset,
                )
            )
        self._send(
            [request(ApiKey.DLQ_WRITTEN, group_id, DlqWritten(ranges=ranges)) for group_id, ranges in written.items()]
        )
        for waiting, last_offset in append.parts:
            waiting.next_offset, waiting.failed_attempts = last_offset + 1, 0
        for group_id in written:
            self._tell_status(group_id, "")

    def _failed(self, due: Sequence[_Waiting], error: LogError | ConfigurationError) -> None:
        self.metrics.failed_appends += 1
        now_s = self._clock_s()
        for waiting in due:
            waiting.failed_attempts += 1
            waiting.due_s = now_s + _backoff_s(waiting.failed_attempts)
        for group_id in sorted({waiting.group_id for waiting in due}):
            logger.warning(Event("dead_letters_failed", group=group_id, reason=str(error)))
            if any(found.failed_attempts >= ATTEMPTS for found in due if found.group_id == group_id):
                self._tell_status(group_id, str(error)[:MAX_NAME_LENGTH])

    def _tell_status(self, group_id: str, failure: str) -> None:
        """Tell the group when its letters begin to fail for good, fail for another reason, or are all written again."""
        if self.metrics.failures.get(group_id, "") == failure or (not failure and self._is_failing(group_id)):
            return
        self._send([request(ApiKey.DLQ_STATUS_CHANGED, group_id, DlqStatusChanged(failure=failure))])
        self.metrics.failures[group_id] = failure
        if not failure:
            del self.metrics.failures[group_id]

    def _is_failing(self, group_id: str) -> bool:
        with self._lock:
            return any(found.failed_attempts >= ATTEMPTS for found in self._queues[group_id].waiting)

    def _forget_done(self) -> None:
        with self._lock:
            for queue in self._queues.values():
                queue.waiting = [found for found in queue.waiting if not found.is_done]
            self._count_waiting()

    def _count_waiting(self) -> None:
        self.metrics.waiting_records = sum(
            found.letters.last_offset - found.next_offset + 1
            for queue in self._queues.values()
            for found in queue.waiting
        )


def _backoff_s(failed_attempts: int) -> float:
    return _LATER_INTERVAL_S if failed_attempts >= ATTEMPTS else _FIRST_BACKOFF_S * 2 ** (failed_attempts - 1)
