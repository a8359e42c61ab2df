"""The leader's part of a redrive: archived records of several share-partitions become available, all or none."""

from __future__ import annotations

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import Effect, address_of, response_to
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.core.archived_runs import archived_runs
from sharegroup.core.offset_ranges import OffsetRange
from sharegroup.core.records import SharePartitionLimits, Transition
from sharegroup.errors import ApiError, InvalidRequestError
from sharegroup.protocol.group_administration import RedriveShareGroupRecordsRequest, RedriveShareGroupRecordsResponse
from sharegroup.protocol.messages import ErrorResponse, parsed

_Selection = list[tuple[LedPartition, list[OffsetRange]]]


def redrive(
    message: LoggedRequest, partitions: LedPartitions, limits: SharePartitionLimits, leader_epoch: int
) -> list[Effect]:
    """Redrive the records of a request; return its response.

    The same request again is refused, since its records are not archived any more: so it does no harm.
    """
    envelope = message.envelope
    response: ErrorResponse
    try:
        request = parsed(RedriveShareGroupRecordsRequest, envelope.body)
        record_count = 0
        for led, ranges in _selection(request, partitions):
            applied = led.share_partition.redrive(ranges, limits, message.time_ms)
            partitions.record(led, applied, message.time_ms, message.offset, lambda _: request.reason)
            record_count += sum(record.size for record in applied if isinstance(record, Transition))
        response = RedriveShareGroupRecordsResponse(record_count=record_count)
    except ApiError as error:
        response = ErrorResponse(error_code=error.code, error_message=str(error))
    return [response_to(address_of(envelope), response, leader_epoch)] if envelope.reply_partition >= 0 else []


def _selection(request: RedriveShareGroupRecordsRequest, partitions: LedPartitions) -> _Selection:
    """Return the share-partitions of a request with their ranges, once all of them can be redriven.

    Raises:
        ApiError: one of them cannot.
    """
    selected: _Selection = []
    keys = [(wanted.topic_id, wanted.partition_index) for wanted in request.partitions]
    if len(set(keys)) < len(keys):
        raise InvalidRequestError("A share-partition is named twice.")
    for key, wanted in zip(keys, request.partitions, strict=True):
        led = partitions.get(key)
        if led is None:
            raise partitions.not_led_error(key)
        ranges = [(r.first_offset, r.last_offset) for r in wanted.ranges]
        try:
            archived_runs(led.share_partition.runs, led.share_partition.start_offset, ranges)
        except ApiError as error:
            raise type(error)(f"{led.topic}-{led.partition}: {error.message}", error.remedy) from None
        selected.append((led, ranges))
    return selected
