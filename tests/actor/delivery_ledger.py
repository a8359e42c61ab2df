"""Deliveries to members, from requests and responses alone: they must be consistent, whatever the leader's state is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import LogOffsets
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, decoded_request, parsed
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    AcknowledgementRange,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tests.actor.group_harness import Batch, Group, PartitionKey

FINISHING = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP)

RecordKey = tuple[PartitionKey, int]
"""Share-partition and offset."""


@dataclass
class Delivery:
    """The deliveries of one record.

    Attributes:
        count: deliveries so far, less those that were taken back.
        holder: who has it; "" when nobody.
        deadline_ms: until when.
        is_finished: it must not be delivered any more.
    """

    count: int = 0
    holder: str = ""
    deadline_ms: int = 0
    is_finished: bool = False


class DeliveryLedger:
    """Checks every batch of a group.

    Args:
        group: the group, before its first batch.
        delivery_count_limit: in force all the time.
        lock_duration_ms: in force all the time.
    """

    def __init__(self, group: Group, delivery_count_limit: int, lock_duration_ms: int) -> None:
        self._group = group
        self._limit = delivery_count_limit
        self._lock_duration_ms = lock_duration_ms
        self._records: dict[RecordKey, Delivery] = {}
        self._log_starts: dict[PartitionKey, int] = {}
        self._handled: set[tuple[str, int]] = set()
        self._completed: set[tuple[str, int]] = set()
        group.after_batch.append(self.check)

    def held_by(self, member_id: str, now_ms: int) -> list[RecordKey]:
        """Return the records that a member may acknowledge, in order."""
        return sorted(key for key, delivery in self._records.items() if self._has(delivery, member_id, now_ms))

    def check(self, batch: Batch) -> None:
        """Check a batch's responses; acknowledgements come before acquisitions, as in the leader."""
        responses = {
            (response.member_id, response.correlation_id): response
            for response in batch.outcome.responses
            if response.api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
        }
        for offset in batch.offsets:
            logged = self._group.log[offset]
            envelope = decoded_request(logged.value)
            address = (envelope.member_id, envelope.correlation_id)
            if envelope.api_key == ApiKey.LOG_OFFSETS:
                self._log_offsets(parsed(LogOffsets, envelope.body))
            elif address in responses and address not in self._handled:
                self._handled.add(address)
                self._request(envelope, responses[address], logged.time_ms)
        last_ms = max((self._group.log[offset].time_ms for offset in batch.offsets), default=0)
        for address, response in responses.items():
            if address not in self._completed:
                self._completed.add(address)
                self._acquired(response, last_ms, max(batch.cut_ms, last_ms))

    def _log_offsets(self, message: LogOffsets) -> None:
        for topic in message.topics:
            for seen in topic.partitions:
                key = (topic.topic_id, seen.partition_index)
                self._log_starts[key] = max(self._log_starts.get(key, 0), seen.start_offset)

    def _request(self, envelope: RequestEnvelope, response: ResponseEnvelope, at_ms: int) -> None:
        body = parsed(ShareFetchResponse, response.body)
        if body.error_code:
            return
        request: ShareFetchRequest | ShareAcknowledgeRequest
        if envelope.api_key == ApiKey.SHARE_FETCH:
            request = parsed(ShareFetchRequest, envelope.body)
        else:
            request = parsed(ShareAcknowledgeRequest, envelope.body)
        succeeded = {
            (topic.topic_id, partition.partition_index)
            for topic in body.responses
            for partition in topic.partitions
            if partition.is_acknowledged and not partition.acknowledge_error_code
        }
        for topic in request.topics:
            for partition in topic.partitions:
                key = (topic.topic_id, partition.partition_index)
                for batch in partition.acknowledgement_batches if key in succeeded else ():
                    self._acknowledged(envelope.member_id, key, batch, at_ms)
        if request.share_session_epoch == FINAL_EPOCH:
            for record_key in self.held_by(envelope.member_id, at_ms):
                self._released(self._records[record_key])

    def _acknowledged(self, member_id: str, key: PartitionKey, batch: AcknowledgementRange, at_ms: int) -> None:
        (acknowledge_type,) = batch.acknowledge_types
        for offset in range(batch.first_offset, batch.last_offset + 1):
            delivery = self._records.get((key, offset), Delivery())
            if not self._has(delivery, member_id, at_ms):
                assert self._is_over(key, offset, delivery, at_ms), (member_id, key, offset, acknowledge_type, delivery)
            elif acknowledge_type in FINISHING:
                delivery.is_finished, delivery.holder = True, ""
            elif acknowledge_type is AcknowledgeType.RENEW:
                delivery.deadline_ms = at_ms + self._lock_duration_ms
            elif acknowledge_type is AcknowledgeType.UNREAD:
                delivery.count, delivery.holder = delivery.count - 1, ""
            else:
                self._released(delivery)

    def _acquired(self, response: ResponseEnvelope, last_ms: int, lock_start_ms: int) -> None:
        body = parsed(ShareFetchResponse, response.body)
        if any(True for _ in _offsets(body)):
            assert body.lock_deadline_ms == lock_start_ms + self._lock_duration_ms
        for key, offset, count in _offsets(body):
            delivery = self._records.setdefault((key, offset), Delivery())
            assert not delivery.is_finished, (key, offset, delivery)
            assert not self._has(delivery, delivery.holder, last_ms), (response.member_id, key, offset, delivery)
            assert count == delivery.count + 1 <= self._limit, (key, offset, count, delivery)
            assert offset >= self._log_starts.get(key, 0), (key, offset)
            delivery.count, delivery.holder, delivery.deadline_ms = count, response.member_id, body.lock_deadline_ms

    def _has(self, delivery: Delivery, member_id: str, at_ms: int) -> bool:
        return bool(delivery.holder) and delivery.holder == member_id and delivery.deadline_ms > at_ms

    def _is_over(self, key: PartitionKey, offset: int, delivery: Delivery, at_ms: int) -> bool:
        is_used_up = delivery.count >= self._limit and delivery.deadline_ms <= at_ms
        return delivery.is_finished or is_used_up or offset < self._log_starts.get(key, 0)

    def _released(self, delivery: Delivery) -> None:
        delivery.holder = ""
        delivery.is_finished = delivery.count >= self._limit


def _offsets(body: ShareFetchResponse) -> Iterator[tuple[PartitionKey, int, int]]:
    for topic in body.responses:
        for partition in topic.partitions:
            for acquired in partition.acquired_records:
                for offset in range(acquired.first_offset, acquired.last_offset + 1):
                    yield (topic.topic_id, partition.partition_index), offset, acquired.delivery_count
