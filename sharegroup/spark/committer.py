"""What happens with a micro-batch's outputs: one Delta commit, then responses, messages, watches and timers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sharegroup.actor.effects import Effect, Persist, Respond, Send, Undecodable, Wake, WatchLog, WatchTopics
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import CheckpointDivergedError, UnknownTopicError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import RequestEnvelope
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.actor_function import ActorOutput
from sharegroup.spark.bootstrap import CheckpointIdentity
from sharegroup.spark.facts import FactSource
from sharegroup.spark.link_topics import ensure_response_topic, request_topic_check
from sharegroup.spark.response_records import ResponseRecords
from sharegroup.state.writer import StateTableWriter

_NO_BATCH = -1


class CommitPoint(StrEnum):
    """How far the commit of a batch has come."""

    ROWS_COMMITTED = "rows committed"
    EVERYONE_TOLD = "everyone told"


def pass_on(point: CommitPoint) -> None:
    """Do nothing at a commit point."""


@dataclass
class CommitterMetrics:
    """Counts and recent durations, for progress and logs."""

    batches: int = 0
    messages: int = 0
    repeated_batches: int = 0
    undecodable_messages: int = 0
    unanswerable_responses: int = 0
    commit_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))


class Committer:
    """Persist before respond: the batch's rows are one commit, and everyone is told after it.

    Args:
        log: request and response log.
        writer: the state table, fenced.
        config: names and partition counts of the topics.
        identity: the streaming checkpoint.
        last_marker: (batch id, request-log end offsets) of the checkpoint's last committed batch; None when none is.
        metrics: where to count.
        reached: called at each point that the commit of a batch passes, for whoever wants to stop there.
    """

    def __init__(
        self,
        log: Log,
        writer: StateTableWriter,
        config: ProcessorConfig,
        identity: CheckpointIdentity,
        last_marker: tuple[int, dict[int, int]] | None,
        metrics: CommitterMetrics,
        reached: Callable[[CommitPoint], None] = pass_on,
    ) -> None:
        self._log = log
        self._writer = writer
        self._config = config
        self._checkpoint_id = identity.checkpoint_id
        self._response_records = ResponseRecords(log, config)
        self._check_request_topic = request_topic_check(log, config, identity.request_topic_id)
        # What was applied before this checkpoint counts, too: a later recovery looks at the last marker only.
        self._last_commit_id, self._ends = last_marker or (_NO_BATCH, dict(identity.start_offsets))
        self.metrics = metrics
        self._reached = reached

    def commit(self, commit_id: int, outputs: Sequence[ActorOutput], facts: FactSource) -> None:
        """Commit a batch and tell everyone; a batch that is executed again commits nothing and tells again.

        Raises:
            FencedProcessorError: another processor owns the state table; nothing was written or told.
            CheckpointDivergedError: the checkpoint does not continue the state table.
        """
        effects = [effect for output in outputs for effect in output.effects]
        end_offsets = _end_offsets(outputs)
        if self._is_repeat(commit_id, end_offsets):
            self.metrics.repeated_batches += 1
        else:
            self._append_rows(commit_id, outputs, effects, end_offsets)
        self._reached(CommitPoint.ROWS_COMMITTED)
        self.metrics.batches += 1
        self.metrics.messages += sum(output.message_count for output in outputs)
        self.metrics.undecodable_messages += sum(isinstance(effect, Undecodable) for effect in effects)
        immediate = facts.update(effect for effect in effects if isinstance(effect, Wake | WatchLog | WatchTopics))
        sends = [effect.request for effect in effects if isinstance(effect, Send)]
        self._tell([effect for effect in effects if isinstance(effect, Respond)], [*sends, *immediate])
        self._reached(CommitPoint.EVERYONE_TOLD)

    def send(self, requests: Sequence[RequestEnvelope]) -> None:
        """Append messages to the request log, each in its group's partition."""
        self._tell([], requests)

    def _is_repeat(self, commit_id: int, end_offsets: dict[int, int]) -> bool:
        """Whether the batch is in the state table; else it must be the one right after the last that is."""
        is_repeat = commit_id == self._last_commit_id
        fits = end_offsets.items() <= self._ends.items() if is_repeat else commit_id == self._last_commit_id + 1
        if not fits:
            raise CheckpointDivergedError(
                f"Batch {commit_id} of checkpoint {self._checkpoint_id} ends at request-log offsets {end_offsets}, but "
                f"the last one in the state table is batch {self._last_commit_id} with {self._ends}: one of the two is "
                "an older copy.",
                "Delete the checkpoint folder and start again: the processor rebuilds it from the state table.",
            )
        return is_repeat

    def _append_rows(
        self, commit_id: int, outputs: Sequence[ActorOutput], effects: Sequence[Effect], end_offsets: dict[int, int]
    ) -> None:
        ends = {**self._ends, **end_offsets}
        rows = [effect.row for effect in effects if isinstance(effect, Persist)]
        payload = CommitMarkerPayload(checkpoint_id=self._checkpoint_id, row_count=len(rows) + 1, end_offsets=ends)
        marker = StateRow(
            record_type=RecordType.COMMIT_MARKER,
            time_ms=outputs[0].batch_ms if outputs else time.time_ns() // 1_000_000,
            payload=payload.model_dump(mode="json"),
        )
        started = time.perf_counter()
        self._writer.append([row.model_copy(update={"commit_id": commit_id}) for row in (marker, *rows)])
        self.metrics.commit_seconds.append(time.perf_counter() - started)
        self._last_commit_id, self._ends = commit_id, ends

    def _tell(self, responses: Sequence[Respond], requests: Sequence[RequestEnvelope]) -> None:
        batches: dict[tuple[str, int], list[NewRecord]] = {}
        # A log that is no database appends topic by topic. Messages come first: what a member does once it has its
        # answer then follows, in the request log, what the batch had to say. A crash between the two topics leaves
        # messages without answers; the batch is executed again and appends both, and a message that comes twice does
        # no harm.
        for envelope in requests:
            partition = partition_for(envelope.group_id, self._config.request_topic_partitions)
            record = NewRecord(envelope.group_id.encode(), envelope.encoded())
            batches.setdefault((self._config.request_topic_name, partition), []).append(record)
        for effect in responses:
            if not 0 <= effect.partition < self._config.response_topic_partitions:
                self.metrics.unanswerable_responses += 1
                continue
            record = self._response_records.record(effect.response)
            batches.setdefault((self._config.response_topic_name, effect.partition), []).append(record)
        if batches:
            self._append([(topic, partition, records) for (topic, partition), records in batches.items()])

    def _append(self, batches: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> None:
        try:
            self._log.append_all(batches)
        except UnknownTopicError:
            # Nothing was appended. Answers that went with the response topic are asked for again by their members.
            self._check_request_topic()
            ensure_response_topic(self._log, self._config)
            self._log.append_all(batches)


def _end_offsets(outputs: Sequence[ActorOutput]) -> dict[int, int]:
    ends: dict[int, int] = {}
    for output in outputs:
        partition = output.request_partition
        ends[partition] = max(ends.get(partition, 0), output.end_offset)
    return ends
