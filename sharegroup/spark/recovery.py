"""Taking over: fence the state table, then continue the checkpoint or rebuild it from the fold."""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import ConfigurationError
from sharegroup.event_log import Event
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import Log, NewRecord, TopicDescription
from sharegroup.protocol.row_payloads import RecoveredPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.bootstrap import CheckpointIdentity, read_identity, write_bootstrap
from sharegroup.spark.link_topics import ensure_topics
from sharegroup.state.fold import FoldedState, fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter

logger = logging.getLogger(__name__)

_FILLERS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class Takeover:
    """What a processor starts from.

    Attributes:
        writer: the fenced state table.
        folded: all groups, as the state table has them.
        identity: the checkpoint to run with.
        last_marker: (batch id, end offsets) of the checkpoint's last committed batch; None when it has none.
        is_recovery: whether the checkpoint was rebuilt from existing state.
    """

    writer: StateTableWriter
    folded: FoldedState
    identity: CheckpointIdentity
    last_marker: tuple[int, dict[int, int]] | None
    is_recovery: bool


def take_over(
    log: Log, config: ProcessorConfig, broker: BrokerConfig, own_checkpoint: Callable[[], None] = lambda: None
) -> Takeover:
    """Fence older processors off the state table, then make ready what the query starts from.

    Args:
        log: request and response log.
        config: where everything is.
        broker: defaults and bounds of all groups.
        own_checkpoint: returns when no fenced processor uses the checkpoint any more.

    Raises:
        ConfigurationError: topics do not fit the configuration, or what the state table was made with.
        StateTableError: the state table cannot be read or written.
    """
    reader = StateTableReader(config.state_table_path)
    # Before anything is made or anyone is fenced: a start that is refused must leave no trace.
    _check_counts(reader, config)
    request_topic = ensure_topics(log, config)
    writer = StateTableWriter.open(
        config.state_table_path,
        _partition_counts(config),
        snapshot_interval_ms=broker.share_coordinator_cold_partition_snapshot_interval_ms,
    )
    own_checkpoint()
    recovery = reader.recovery()
    marker = recovery.last_marker
    folded = fold(recovery.rows)
    files = f"{len(recovery.files)} of {recovery.file_count}"
    logger.info(Event("state_table_read", rows=len(recovery.rows), files=files))
    checkpoint = Path(config.checkpoint_path)
    identity = read_identity(checkpoint)
    if identity is not None and identity.request_topic_id == request_topic.topic_id:
        last_marker = None if marker is None else (marker.commit_id, dict(marker.end_offsets))
        is_continued = marker is None or marker.checkpoint_id == identity.checkpoint_id
        applied = {**identity.start_offsets, **(last_marker[1] if last_marker else {})}
        if is_continued and not _is_cut_off(log, request_topic.name, applied):
            return Takeover(writer, folded, identity, last_marker, is_recovery=False)
    identity = _new_checkpoint(log, request_topic, checkpoint, marker.end_offsets if marker else {})
    write_bootstrap(checkpoint, identity, folded, broker, marker.commit_time_ms if marker else 0)
    if folded.groups:
        writer.append([_recovered_row(writer.leader_epoch, identity, len(folded.groups))])
    return Takeover(writer, folded, identity, None, is_recovery=bool(folded.groups))


def _partition_counts(config: ProcessorConfig) -> dict[str, int]:
    """What the fence says of the topics: who is in which partition hangs on it."""
    return {key: config.value(key) for key in ("request.topic.partitions", "response.topic.partitions")}


def _check_counts(reader: StateTableReader, config: ProcessorConfig) -> None:
    fence = reader.last_fence() if reader.exists() else None
    for key, count in _partition_counts(config).items():
        recorded = fence.payload.get(key, count) if fence else count
        if recorded != count:
            raise ConfigurationError(
                f"{key} is {count}, but state table {config.state_table_path} was made with {recorded}.",
                f"Set {key} to {recorded}: the count is fixed by the first start.",
            )


def _is_cut_off(log: Log, topic: str, applied: Mapping[int, int]) -> bool:
    """Whether messages were deleted that no batch has applied, as a broker does when their retention is over.

    The query of the checkpoint would look for them, and fail. Members have long given up waiting for the answers.
    """
    starts = {partition: found.start_offset for partition, found in log.offsets(topic).items()}
    lost = {partition: start for partition, start in starts.items() if start > applied.get(partition, 0)}
    if lost:
        logger.warning(Event("requests_deleted", topic=topic, applied_to=dict(applied), log_starts_at=lost))
    return bool(lost)


def _new_checkpoint(
    log: Log, request_topic: TopicDescription, checkpoint: Path, end_offsets: Mapping[int, int]
) -> CheckpointIdentity:
    """An empty checkpoint folder whose query goes on where the state table ends."""
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    starts: dict[int, int] = {}
    for partition, found in log.offsets(request_topic.name).items():
        start = max(end_offsets.get(partition, 0), found.start_offset)
        if start > found.end_offset:
            _raise_end_offset(log, request_topic.name, partition, start, found.end_offset)
        starts[partition] = start
    return CheckpointIdentity(uuid.uuid4().hex, request_topic.topic_id, starts)


def _raise_end_offset(log: Log, topic: str, partition: int, start: int, end_offset: int) -> None:
    """The request log was lost: offsets that the state table has seen must not come again."""
    logger.warning(
        Event("request_log_lost", share_partition=f"{topic}-{partition}", end_offset=end_offset, applied_to=start)
    )
    if isinstance(log, LocalLog):
        log.raise_end_offset(topic, partition, start)
        return
    # Kafka gives out offsets only with records; nobody reads these.
    while end_offset < start:
        count = min(start - end_offset, _FILLERS_AT_ONCE)
        end_offset = log.append(topic, partition, [NewRecord(None, None)] * count) + count


def _recovered_row(leader_epoch: int, identity: CheckpointIdentity, group_count: int) -> StateRow:
    payload = RecoveredPayload(
        checkpoint_id=identity.checkpoint_id, start_offsets=dict(identity.start_offsets), groups=group_count
    ).model_dump(mode="json")
    now_ms = time.time_ns() // 1_000_000
    return StateRow(record_type=RecordType.RECOVERED, time_ms=now_ms, leader_epoch=leader_epoch, payload=payload)
