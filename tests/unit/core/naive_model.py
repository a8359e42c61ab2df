"""A share-partition written for reading: one entry an offset, one loop a rule (spec 002). Slow on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from sharegroup.core.acquisition import AcquireMode, AcquireRequest
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.core.run import Run

FINISHED = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(frozen=True)
class NaiveRecord:
    state: RecordState = RecordState.AVAILABLE
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: int = 0
    is_suspect: bool = False


class RefusedError(Exception):
    """A request that changes nothing, under the name of Kafka's error."""


class NaiveSharePartition:
    def __init__(self, start_offset: int, records: dict[int, NaiveRecord]) -> None:
        self.start_offset = start_offset
        self.next_offset = start_offset + len(records)
        self.records = records
        self._advance_start_offset()

    # --- acquire ------------------------------------------------------------------------------------------------

    def acquire(
        self, request: AcquireRequest, limits: SharePartitionLimits, log_end_offset: int, now_ms: int
    ) -> dict[int, int]:
        """Offset → delivery count of everything acquired."""
        chosen = self._suspects(request, limits, log_end_offset, now_ms) if request.takes_suspects else []
        if not request.takes_suspects:
            chosen = self._chosen(request, limits, log_end_offset, now_ms)
        self.take(request.member_id, chosen, limits, now_ms)
        return {offset: self.records[offset].delivery_count for offset in chosen}

    def _suspects(
        self, request: AcquireRequest, limits: SharePartitionLimits, log_end_offset: int, now_ms: int
    ) -> list[int]:
        """The first ones of one delivery count, as many as divide all of that count by the same factor each time."""
        available = [
            portion for portion in self._portions(limits, log_end_offset, now_ms) if self._are_suspects(portion)
        ]
        counts = [self._delivery_count(portion[0]) for portion in available]
        alike = list(takewhile(lambda portion: self._delivery_count(portion[0]) == counts[0], available))
        if not alike:
            return []
        limit, count = limits.delivery_count_limit, counts[0]
        waiting = sum(
            record.is_suspect and record.state is RecordState.AVAILABLE and record.delivery_count == count
            for record in self.records.values()
        )
        size = waiting
        if limit < 4 or count > 1:
            left = max(limit - 1 - count, 0)
            size = next(size for size in range(1, waiting + 1) if size ** (left + 1) >= waiting**left)
        size = min(size, request.max_records, request.fair_part or size)
        return [offset for portion in alike for offset in portion][:size]

    def _are_suspects(self, portion: Sequence[int]) -> bool:
        return self.records.get(portion[0], NaiveRecord()).is_suspect

    def _chosen(
        self, request: AcquireRequest, limits: SharePartitionLimits, log_end_offset: int, now_ms: int
    ) -> list[int]:
        chosen: list[int] = []
        is_throttled = False
        fair_part = request.fair_part or log_end_offset
        for portion in self._portions(limits, log_end_offset, now_ms):
            if self._are_suspects(portion):
                continue
            wanted = request.max_records - len(chosen)
            allowed = fair_part - len(chosen)
            if wanted <= 0 or allowed <= 0:
                break
            count = self._delivery_count(portion[0])
            threshold = max(2, -(-limits.delivery_count_limit // 2))
            if count >= threshold:
                is_last_delivery = count >= limits.delivery_count_limit - 1
                size = 1 if is_last_delivery else max(1, len(portion) // 2 ** (count - threshold + 1))
                if chosen and (is_last_delivery or not is_throttled):
                    break
                chosen += portion[: min(size, wanted, allowed)]
                if is_last_delivery:
                    break
                is_throttled = True
                continue
            if is_throttled:
                break
            was_in_flight = portion[0] in self.records
            is_soft = request.mode is AcquireMode.BATCH_OPTIMIZED and was_in_flight
            is_whole = is_soft and len(portion) - wanted < request.batch_size
            chosen += portion[:allowed] if is_whole else portion[: min(wanted, allowed)]
        return chosen

    def acquirable_count(self, limits: SharePartitionLimits, log_end_offset: int, now_ms: int) -> int:
        portions = self._portions(limits, log_end_offset, now_ms)
        return sum(len(portion) for portion in portions if not self._are_suspects(portion))

    def acquirable_suspect_count(self, limits: SharePartitionLimits, log_end_offset: int, now_ms: int) -> int:
        portions = self._portions(limits, log_end_offset, now_ms)
        return sum(len(portion) for portion in portions if self._are_suspects(portion))

    def take(self, member_id: str, offsets: Sequence[int], limits: SharePartitionLimits, now_ms: int) -> None:
        for offset in offsets:
            self._reach(offset)
            count = self.records[offset].delivery_count + 1
            deadline_ms = now_ms + limits.lock_duration_ms
            is_suspect = self.records[offset].is_suspect
            self.records[offset] = NaiveRecord(RecordState.ACQUIRED, count, member_id, deadline_ms, is_suspect)

    def _portions(self, limits: SharePartitionLimits, log_end_offset: int, now_ms: int) -> Iterator[list[int]]:
        """Touching available offsets that are alike; then what was never in flight and fits the window and the span."""
        portion: list[int] = []
        for offset in sorted(self.records):
            record = self.records[offset]
            if record.state is not RecordState.AVAILABLE or record.deadline_ms > now_ms or offset >= log_end_offset:
                continue
            if portion and (portion[-1] != offset - 1 or self.records[portion[-1]] != record):
                yield portion
                portion = []
            portion.append(offset)
        if portion:
            yield portion
        new = list(range(self.next_offset, min(log_end_offset, self.allowed_end(limits, now_ms))))
        if new:
            yield new

    def allowed_end(self, limits: SharePartitionLimits, now_ms: int) -> int:
        """One past the last offset that may come in flight."""
        if self.run_count >= limits.max_runs:
            return self.next_offset
        in_window = sum(
            record.state is RecordState.ACQUIRED
            or (record.state is RecordState.AVAILABLE and record.deadline_ms <= now_ms)
            for record in self.records.values()
        )
        span = max(limits.max_span_offsets, limits.max_record_locks)
        return min(self.next_offset + limits.max_record_locks - in_window, self.start_offset + span)

    @property
    def run_count(self) -> int:
        """Groups of touching offsets that are alike."""
        in_order = [self.records[offset] for offset in sorted(self.records)]
        return sum(record != before for before, record in zip([None, *in_order], in_order, strict=False))

    def _delivery_count(self, offset: int) -> int:
        return self.records.get(offset, NaiveRecord()).delivery_count

    def _reach(self, offset: int) -> None:
        for skipped in range(self.next_offset, offset + 1):
            self.records[skipped] = NaiveRecord()
        self.next_offset = max(self.next_offset, offset + 1)

    # --- acknowledge --------------------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], limits: SharePartitionLimits, now_ms: int
    ) -> None:
        """All of it or nothing.

        Raises:
            RefusedError: one batch is not acceptable.
        """
        after = dict(self.records)
        for batch in batches:
            offsets = range(batch.first_offset, batch.last_offset + 1)
            if not offsets or batch.first_offset < 0 or len(batch.types) not in (1, len(offsets)):
                raise RefusedError("INVALID_REQUEST")
            if batch.last_offset < self.start_offset:
                continue
            if not self.records:
                raise RefusedError("INVALID_RECORD_STATE")
            if batch.last_offset >= self.next_offset:
                raise RefusedError("INVALID_REQUEST")
            types = batch.types if len(batch.types) > 1 else batch.types * len(offsets)
            for offset, acknowledge_type in zip(offsets, types, strict=True):
                if offset >= self.start_offset:
                    record = self._acknowledged(after[offset], member_id, acknowledge_type, limits, now_ms)
                    if acknowledge_type is AcknowledgeType.RELEASE and record.state is RecordState.AVAILABLE:
                        record = _delayed(record, limits, now_ms, batch.redelivery_delay_ms)
                    if acknowledge_type is AcknowledgeType.UNREAD:
                        record = _delayed(record, limits, now_ms, batch.redelivery_delay_ms or 0)
                    after[offset] = record
        self.records = after
        self._advance_start_offset()

    def _acknowledged(
        self,
        record: NaiveRecord,
        member_id: str,
        acknowledge_type: AcknowledgeType,
        limits: SharePartitionLimits,
        now_ms: int,
    ) -> NaiveRecord:
        if record.state is not RecordState.ACQUIRED or record.member_id != member_id:
            raise RefusedError("INVALID_RECORD_STATE")
        match acknowledge_type:
            case AcknowledgeType.ACCEPT:
                return NaiveRecord(RecordState.ACKNOWLEDGED, record.delivery_count)
            case AcknowledgeType.RELEASE:
                return _put_back(record, limits)
            case AcknowledgeType.REJECT:
                return _given_up(record, limits)
            case AcknowledgeType.GAP:
                return NaiveRecord(RecordState.ARCHIVED, record.delivery_count)
            case AcknowledgeType.UNREAD:
                return NaiveRecord(RecordState.AVAILABLE, record.delivery_count - 1, is_suspect=record.is_suspect)
            case AcknowledgeType.RENEW:
                if not limits.is_renew_enabled:
                    raise RefusedError("INVALID_RECORD_STATE")
                return replace(record, deadline_ms=now_ms + limits.lock_duration_ms)

    # --- everything else ----------------------------------------------------------------------------------------

    def expire_locks(self, limits: SharePartitionLimits, now_ms: int) -> None:
        for offset, record in self.records.items():
            if record.state is RecordState.ACQUIRED and record.deadline_ms <= now_ms:
                returned = _put_back(record, limits, is_suspect=True)
                is_available = returned.state is RecordState.AVAILABLE
                self.records[offset] = _delayed(returned, limits, now_ms) if is_available else returned
        self._advance_start_offset()

    def release_member(self, member_id: str, limits: SharePartitionLimits, *, is_orderly: bool) -> None:
        for offset, record in self.records.items():
            if record.state is RecordState.ACQUIRED and record.member_id == member_id:
                is_suspect = record.is_suspect or not is_orderly
                self.records[offset] = _put_back(record, limits, is_suspect=is_suspect)
        self._advance_start_offset()

    def finish_dead_letters(self, first_offset: int, last_offset: int) -> None:
        for offset, record in self.records.items():
            if record.state is RecordState.ARCHIVING and first_offset <= offset <= last_offset:
                self.records[offset] = NaiveRecord(RecordState.ARCHIVED, record.delivery_count)
        self._advance_start_offset()

    def redrive(self, first_offset: int, last_offset: int) -> None:
        """All of it or nothing.

        Raises:
            RefusedError: one record is not archived.
        """
        offsets = range(first_offset, last_offset + 1)
        if any(
            offset not in self.records or self.records[offset].state is not RecordState.ARCHIVED for offset in offsets
        ):
            raise RefusedError("INVALID_RECORD_STATE")
        for offset in offsets:
            self.records[offset] = NaiveRecord()

    def move_log_start(self, log_start_offset: int) -> None:
        if log_start_offset > self.start_offset:
            self.records = {offset: record for offset, record in self.records.items() if offset >= log_start_offset}
            self.start_offset = log_start_offset
            self.next_offset = max(self.next_offset, log_start_offset)
            self._advance_start_offset()

    def _advance_start_offset(self) -> None:
        while self.start_offset in self.records and self.records[self.start_offset].state in FINISHED:
            del self.records[self.start_offset]
            self.start_offset += 1


def _put_back(record: NaiveRecord, limits: SharePartitionLimits, *, is_suspect: bool = False) -> NaiveRecord:
    if record.delivery_count >= limits.delivery_count_limit:
        return _given_up(record, limits)
    return NaiveRecord(RecordState.AVAILABLE, record.delivery_count, is_suspect=is_suspect)


def _delayed(
    record: NaiveRecord, limits: SharePartitionLimits, now_ms: int, asked_ms: int | None = None
) -> NaiveRecord:
    backoff_ms = limits.redelivery_backoff_ms
    for _ in range(record.delivery_count - 1):
        backoff_ms = min(2 * backoff_ms, limits.redelivery_backoff_max_ms)
    delay_ms = min(backoff_ms, limits.redelivery_backoff_max_ms) if asked_ms is None else asked_ms
    return replace(record, deadline_ms=now_ms + delay_ms if delay_ms else 0)


def _given_up(record: NaiveRecord, limits: SharePartitionLimits) -> NaiveRecord:
    state = RecordState.ARCHIVING if limits.has_dead_letter_queue else RecordState.ARCHIVED
    return NaiveRecord(state, record.delivery_count)


def offset_by_offset(runs: Sequence[Run]) -> dict[int, NaiveRecord]:
    """The same content as a model has it."""
    return {
        offset: NaiveRecord(run.state, run.delivery_count, run.member_id, run.deadline_ms, run.is_suspect)
        for run in runs
        for offset in range(run.first_offset, run.last_offset + 1)
    }
