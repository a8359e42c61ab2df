"""The leader's part of open writes: what a sink says of them, and the requests that have to wait for it."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import Effect, address_of, response_to
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.core.open_writes import OpenWrite
from sharegroup.core.records import PartitionKey, SharePartitionLimits, Transition
from sharegroup.errors import ApiError, InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest
from sharegroup.protocol.messages import ErrorResponse, RequestEnvelope, parsed
from sharegroup.protocol.write_resolution import ResolveWriteRequest, ResolveWriteResponse


def resolve_write(
    message: LoggedRequest,
    partitions: LedPartitions,
    offsets: KnownOffsets,
    limits: SharePartitionLimits,
    leader_epoch: int,
) -> list[Effect]:
    """Apply what a sink says of a write; return the response. It needs no share session, and a repeat does nothing."""
    envelope = message.envelope
    response: ErrorResponse
    try:
        request = parsed(ResolveWriteRequest, envelope.body)
        write = partitions.writes.get(request.version)
        record_count = 0
        if write is not None:
            _check_same(request, write)
            record_count = _apply(request, message, partitions, offsets, limits)
        response = ResolveWriteResponse(record_count=record_count)
    except ApiError as error:
        response = ErrorResponse(error_code=error.code, error_message=str(error))
    return [response_to(address_of(envelope), response, leader_epoch)] if envelope.reply_partition >= 0 else []


def check_no_open_writes(group_id: str, partitions: Iterable[LedPartition]) -> None:
    """Refuse to forget share-partitions before their open writes are decided.

    Raises:
        InvalidRequestError: one of them has an open write.
    """
    for led in partitions:
        if count := len(led.share_partition.open_writes):
            raise InvalidRequestError(
                f"{led.topic}-{led.partition} has {count} open writes: whether the results of their records are in the "
                "sink is not known yet.",
                f"Run `sharegroup groups resolve --group {group_id}`, and try again.",
            )


def named_partitions(envelope: RequestEnvelope, partitions: LedPartitions) -> list[LedPartition]:
    """Return the share-partitions whose state a request would end: those of its topics, or all of a deleted group."""
    if envelope.api_key == ApiKey.DELETE_GROUPS:
        return list(partitions.values())
    if envelope.api_key == ApiKey.ALTER_SHARE_GROUP_OFFSETS:
        names = {topic.topic_name for topic in parsed(AlterShareGroupOffsetsRequest, envelope.body).topics}
    else:
        names = {topic.topic_name for topic in parsed(DeleteShareGroupOffsetsRequest, envelope.body).topics}
    return [led for led in partitions.values() if led.topic in names]


def _check_same(request: ResolveWriteRequest, write: OpenWrite) -> None:
    for name, stated, kept in (
        ("app_id", request.app_id, write.app_id),
        ("table_id", request.table_id, write.table_id),
    ):
        if stated != kept:
            raise InvalidRequestError(
                f"{name} {stated!r} is not that of the open write {write.version}, {kept!r}.",
                "Look into the table that the write names.",
            )


def _apply(
    request: ResolveWriteRequest,
    message: LoggedRequest,
    partitions: LedPartitions,
    offsets: KnownOffsets,
    limits: SharePartitionLimits,
) -> int:
    """Apply it to all share-partitions of the write; return the number of records whose state changed."""
    resolutions = request.resolutions()
    record_count = 0
    for key in partitions.writes.keys_of(request.version):
        led = partitions[key]
        resolution = resolutions.get(key, request.resolution_of_others)
        applied = led.share_partition.resolve(request.version, resolution, limits, message.time_ms)
        partitions.record(led, applied, message.time_ms, message.offset, lambda _: request.reason)
        record_count += sum(record.size for record in applied if isinstance(record, Transition))
        _follow_log_start(key, partitions, offsets, limits, message)
    partitions.refresh_write(request.version)
    return record_count


def _follow_log_start(
    key: PartitionKey,
    partitions: LedPartitions,
    offsets: KnownOffsets,
    limits: SharePartitionLimits,
    message: LoggedRequest,
) -> None:
    """Move the start offset to the log start, where open writes have held it up."""
    if offsets.is_known(key):
        led = partitions[key]
        moved = led.share_partition.move_log_start(offsets.start_offset(key), limits)
        partitions.record(led, moved, message.time_ms, message.offset)
