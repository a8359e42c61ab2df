"""Taking over the state table and the logs from whichever processor had them before.

The order matters:

    1. check      a start that is refused makes nothing and fences nobody
    2. fence      a row with the next leader epoch: older processors can commit no more
    3. fold       the state table gives groups, the last marker, and its outbox
    4. announce   in every request partition: older processors stop before they apply what follows
    5. publish    the outbox of the last marker again; internal messages with the new leader epoch
    6. announce   in every response partition: members reopen their sessions
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import ConfigurationError, OlderStateError
from sharegroup.event_log import Event
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import Log, NewRecord, TopicDescription
from sharegroup.processor.loop import Position, StateWriter
from sharegroup.processor.publisher import COMMIT_ID_HEADER, LogPublisher
from sharegroup.processor.topics import ensure_topics
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import ProcessorStarted
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import decoded_request
from sharegroup.protocol.rows import StateRow
from sharegroup.state.delta_table import translated
from sharegroup.state.fold import FoldedState, fold
from sharegroup.state.log_repair import repair_tip
from sharegroup.state.reader import CommitMarkerInfo, Recovery, StateTableReader
from sharegroup.state.writer import StateTableWriter

logger = logging.getLogger("sharegroup.processor")

CAREFUL_AFTER_TAKEOVERS = 2
"""After so many takeovers at one marker, messages are applied one a commit."""

_FILLERS_AT_ONCE = 100_000
_READ_AT_ONCE = 10_000
_LAST_ANSWERS = 100


@dataclass(frozen=True, slots=True)
class Takeover:
    """What a processor starts from.

    Attributes:
        writer: the fenced state table.
        publisher: the logs, as this processor writes them.
        folded: all groups, as the state table has them.
        position: where the loop begins.
        marker: payload of the last marker; None when there is none.
        clock_ms: request partition → time at which its clock begins; epoch ms.
        leads_ms: request partition → how far that is ahead of the stamp of this processor's announcement.
        announced_offsets: request partition → offset of this processor's announcement.
        takeovers_since_marker: processors that have taken over since the last marker, before this one.
    """

    writer: FencedTable
    publisher: LogPublisher
    folded: FoldedState
    position: Position
    marker: CommitMarkerPayload | None
    clock_ms: Mapping[int, int]
    leads_ms: Mapping[int, int]
    announced_offsets: Mapping[int, int]
    takeovers_since_marker: int

    @property
    def is_careful(self) -> bool:
        """Return True if the messages after the marker may have ended the processors before."""
        return self.takeovers_since_marker >= CAREFUL_AFTER_TAKEOVERS


class FencedTable(StateWriter, Protocol):
    """The state table, as its one writer has it."""

    @property
    def leader_epoch(self) -> int:
        """Epoch of the writer's fence."""
        ...


class StateTable(Protocol):
    """The state table, as a takeover finds it; the reader has the meaning of each method."""

    def exists(self) -> bool:
        """Return True if there is a table."""
        ...

    def last_fence(self) -> StateRow | None:
        """Return the fence of the processor that took over last."""
        ...

    def last_marker(self) -> CommitMarkerInfo | None:
        """Return the last marker."""
        ...

    def leader_epoch(self) -> int:
        """Return the highest leader epoch."""
        ...

    def recovery(self) -> Recovery:
        """Return all that decides the present state."""
        ...

    def fence(self, identity: Mapping[str, Any]) -> FencedTable:
        """Commit a fence with the next leader epoch; creates the table when it is missing."""
        ...


class DeltaStateTable(StateTableReader):
    """The state table in Delta.

    Args:
        path: the table's folder.
    """

    @classmethod
    def repaired(cls, path: str) -> DeltaStateTable:
        """Return the table without what a power failure left of commits: a torn one cannot even be looked at.

        Raises:
            StateTableError: the table cannot be repaired.
        """
        with translated(path, "repaired"):
            repair_tip(path)
        return cls(path)

    def fence(self, identity: Mapping[str, Any]) -> StateTableWriter:
        """Commit a fence with the next leader epoch."""
        return StateTableWriter.open(self.path, identity)


def take_over(log: Log, table: StateTable, config: ProcessorConfig, accepts_older_state: bool = False) -> Takeover:
    """Take over, in the order that the module describes.

    Args:
        log: record, request and response log.
        table: the state table.
        config: names and partition counts of the topics.
        accepts_older_state: whether the state table may be an older copy than the request log.

    Raises:
        ConfigurationError: topics do not fit the configuration, or what the state table was made with.
        OlderStateError: the state table is an older copy.
        StateTableError: the state table cannot be read or written.
    """
    _check_counts(table, config)
    request_topic = ensure_topics(log, config)
    if not accepts_older_state:
        _check_age(log, config, table)
    writer = table.fence({**_partition_counts(config), "request_topic_id": request_topic.topic_id})
    recovery = table.recovery()
    folded = fold(recovery.rows)
    marker = recovery.last_marker.payload if recovery.last_marker else None
    ends = _start_offsets(log, request_topic, marker)
    _raise_record_ends(log, folded)
    publisher = LogPublisher(log, config, request_topic.topic_id, writer.leader_epoch)
    announcement = ProcessorStarted(pid=os.getpid(), host=socket.gethostname())
    announced = publisher.announce_to_processors(announcement)
    if marker is not None:
        _publish_outbox(publisher, recovery, marker, writer.leader_epoch)
    publisher.announce_to_members(announcement)
    commit_id = recovery.last_marker.commit_id if recovery.last_marker else -1
    stamps_ms = _announcement_stamps(log, config, announced)
    clock_ms = _clock_starts(stamps_ms, marker)
    if accepts_older_state:
        _log_repeated(log, config, ends)
    return Takeover(
        writer,
        publisher,
        folded,
        Position(
            writer.leader_epoch,
            commit_id,
            ends,
            dict(marker.unapplied_groups) if marker else {},
            dict(marker.message_times_ms) if marker else {},
        ),
        marker,
        clock_ms,
        {partition: clock_ms[partition] - stamp_ms for partition, stamp_ms in stamps_ms.items()},
        announced,
        recovery.takeovers_since_marker - 1,
    )


def _partition_counts(config: ProcessorConfig) -> dict[str, int]:
    """Return what the fence records of the topics: the partition of a group or member depends on it."""
    return {key: config.value(key) for key in ("request.topic.partitions", "response.topic.partitions")}


def _check_counts(table: StateTable, config: ProcessorConfig) -> None:
    fence = table.last_fence() if table.exists() else None
    for key, count in _partition_counts(config).items():
        recorded = fence.payload.get(key, count) if fence else count
        if recorded != count:
            raise ConfigurationError(
                f"{key} is {count}, but state table {config.state_table_path} was made with {recorded}.",
                f"Set {key} to {recorded}: the count is fixed by the first start.",
            )


def _check_age(log: Log, config: ProcessorConfig, table: StateTable) -> None:
    """Refuse a state table that lacks commits on which published answers rest, or a processor that was announced.

    The processor before may still commit, publish and announce: so each log is read before the table that must have
    all that stands in it.

    Raises:
        OlderStateError: it is an older copy.
    """
    published = _last_published_commit_id(log, config)
    marker = table.last_marker() if table.exists() else None
    commit_id = marker.commit_id if marker else -1
    if published > commit_id:
        raise _older_state(config, f"it ends with commit {commit_id}, and answers of commit {published} are published")
    announced = _last_announced_epoch(log, config, marker.end_offsets if marker else {})
    leader_epoch = table.leader_epoch() if table.exists() else 0
    if announced > leader_epoch:
        raise _older_state(config, f"it ends with leader epoch {leader_epoch}, and epoch {announced} was announced")


def _older_state(config: ProcessorConfig, reason: str) -> OlderStateError:
    return OlderStateError(
        f"State table {config.state_table_path} is an older copy than the request log: {reason}.",
        "Restore the newest copy. To go on with this one, start with --accept-older-state: messages after its last "
        "commit are applied again, and records that were finished meanwhile are delivered again.",
    )


def _last_published_commit_id(log: Log, config: ProcessorConfig) -> int:
    highest = -1
    topic = config.response_topic_name
    for partition, offsets in log.offsets(topic).items():
        start = max(offsets.start_offset, offsets.end_offset - _LAST_ANSWERS)
        for record in log.read(topic, partition, start, offsets.end_offset, max_bytes=64 * 1024 * 1024):
            for key, value in record.headers:
                if key == COMMIT_ID_HEADER and value is not None:
                    highest = max(highest, int(value))
    return highest


def _last_announced_epoch(log: Log, config: ProcessorConfig, end_offsets: Mapping[int, int]) -> int:
    highest = 0
    topic = config.request_topic_name
    for partition, offsets in log.offsets(topic).items():
        position = max(offsets.start_offset, end_offsets.get(partition, 0))
        while position < offsets.end_offset:
            records = log.read(topic, partition, position, offsets.end_offset, _READ_AT_ONCE, 64 * 1024 * 1024)
            for record in records:
                if record.key is None and record.value and len(record.value) < 10_000:
                    highest = max(highest, _announced_epoch(record.value))
            position = records[-1].offset + 1 if records else offsets.end_offset
    return highest


def _announced_epoch(value: bytes) -> int:
    try:
        envelope = decoded_request(value)
    except ValueError:
        return 0
    return envelope.leader_epoch if envelope.api_key == ApiKey.PROCESSOR_STARTED else 0


def _start_offsets(log: Log, request_topic: TopicDescription, marker: CommitMarkerPayload | None) -> dict[int, int]:
    """Return where each request partition goes on, in a log that may have lost messages at either end."""
    starts: dict[int, int] = {}
    applied = marker.end_offsets if marker else {}
    for partition, offsets in log.offsets(request_topic.name).items():
        start = applied.get(partition, 0)
        if start < offsets.start_offset:
            # Deleted when their retention was over; members have given up waiting for the answers long ago.
            logger.warning(
                Event("requests_deleted", partition=partition, applied_to=start, log_starts_at=offsets.start_offset)
            )
            start = offsets.start_offset
        if start > offsets.end_offset:
            _raise_request_end(log, request_topic.name, partition, start, offsets.end_offset)
        starts[partition] = start
    return starts


def _raise_request_end(log: Log, topic: str, partition: int, start: int, end_offset: int) -> None:
    """The request log was lost: offsets that the state table has seen must not come again."""
    logger.warning(Event("request_log_lost", partition=f"{topic}-{partition}", end_offset=end_offset, applied_to=start))
    if isinstance(log, LocalLog):
        log.raise_end_offset(topic, partition, start)
        return
    # Kafka gives out offsets only with records; nobody reads these.
    while end_offset < start:
        count = min(start - end_offset, _FILLERS_AT_ONCE)
        end_offset = log.append(topic, partition, [NewRecord(None, None)] * count) + count


def _raise_record_ends(log: Log, folded: FoldedState) -> None:
    """Let no offset of the embedded log come again that a share-partition has seen, after it lost its last records."""
    if not isinstance(log, LocalLog):
        return
    seen: dict[tuple[str, str, int], int] = {}
    for group in folded.groups.values():
        for partition in group.partitions.values():
            key = (partition.topic, partition.topic_id, partition.partition)
            seen[key] = max(seen.get(key, 0), partition.share_partition.next_offset)
    topics = {topic.name: topic for topic in log.topics()}
    for (topic, topic_id, index), next_offset in seen.items():
        if topic not in topics or topics[topic].topic_id != topic_id:
            continue
        end_offset = log.offsets(topic)[index].end_offset
        if end_offset < next_offset:
            logger.warning(
                Event(
                    "records_lost", share_partition=f"{topic}-{index}", end_offset=end_offset, acquired_to=next_offset
                )
            )
            log.raise_end_offset(topic, index, next_offset)


def _publish_outbox(
    publisher: LogPublisher, recovery: Recovery, marker: CommitMarkerPayload, leader_epoch: int
) -> None:
    messages = []
    for value in marker.messages:
        fields = {**json.loads(value), "leader_epoch": leader_epoch}
        messages.append((fields["group_id"], json.dumps(fields)))
    assert recovery.last_marker is not None
    publisher.publish(messages, marker.answers, recovery.last_marker.commit_id)


def _announcement_stamps(log: Log, config: ProcessorConfig, announced: Mapping[int, int]) -> dict[int, int]:
    stamps_ms: dict[int, int] = {}
    for partition, offset in announced.items():
        (record,) = log.read(config.request_topic_name, partition, offset, offset + 1)
        stamps_ms[partition] = record.timestamp_ms
    return stamps_ms


def _clock_starts(stamps_ms: Mapping[int, int], marker: CommitMarkerPayload | None) -> dict[int, int]:
    starts = dict(stamps_ms)
    for partition, time_ms in marker.message_times_ms.items() if marker else ():
        starts[partition] = max(starts.get(partition, 0), time_ms)
    for cut in marker.cuts if marker else ():
        starts[cut.partition] = max(starts.get(cut.partition, 0), cut.time_ms)
    return starts


def _log_repeated(log: Log, config: ProcessorConfig, ends: Mapping[int, int]) -> None:
    for partition, offsets in log.offsets(config.request_topic_name).items():
        first = ends[partition]
        logger.warning(
            Event("messages_applied_again", partition=partition, first=first, count=offsets.end_offset - first)
        )
