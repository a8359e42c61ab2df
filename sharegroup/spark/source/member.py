"""The member of a query: acquires the next batch, renews the locks of the active one, acknowledges the committed one.

It runs in the process that Spark starts on the driver for each stream of a Python source; threads of its own send
heartbeats, fetch ahead and renew locks. The member id is in every offset, so a restarted query remains the member that
holds its batch, until the locks end.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterable
from functools import partial

from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition, HeldRange, unread
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.client.sink_table import WRITE_EXPIRY_MS
from sharegroup.client.write_resolver import WriteResolver
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.cause_rules import ANSWER_CAUSE, ENDS_OF_DELIVERIES
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.errors import (
    ApiError,
    InvalidRequestError,
    RequestTimedOutError,
    ShareGroupError,
    UndecidedWriteError,
)
from sharegroup.event_log import Event
from sharegroup.logs.log_clock import monotonic_ms
from sharegroup.logs.port import Log
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from sharegroup.spark.held_ranges import without_refused, without_unreadable
from sharegroup.spark.range_size import RangeSize
from sharegroup.spark.sink.service import ServedSink
from sharegroup.spark.source.batch_acknowledgements import acknowledgements_of, acknowledgements_without_rows
from sharegroup.spark.source.folder import MemberFolder
from sharegroup.spark.source.offset import AcquiredOffset
from sharegroup.spark.source.query_options import SourceOptions

logger = logging.getLogger("sharegroup.spark.source")

_RESPONSE_TIMEOUT_MS = 10_000
_CLOSE_TIMEOUT_MS = 5_000
_PREDECESSOR_TIMEOUT_S = 10.0
"""Longer than it takes a member to leave."""
_POLL_S = 0.1
_RENEWALS_PER_LOCK = 3
_BATCH_IDS_BEGIN = (
    "The batch ids of this checkpoint begin at 0, and the group has read these topics before. A sink that skips the "
    "batch ids which it has seen under the same name (in Delta txnAppId and txnVersion) drops records of this query in "
    "silence, and they are accepted."
)
_NEW_NAME = "Give such a sink a name that changes with the checkpoint: the query's id, as in docs/spark_source.md."
_FINAL_TYPES = frozenset(kind for kind, cause in ANSWER_CAUSE.items() if cause in ENDS_OF_DELIVERIES)


class SourceMember:
    """A query's membership of its share group.

    Args:
        log: the log with the requests, the responses and the records; close it after the member.
        last: the query's latest offset; the member resumes the membership of its member id, if it has one.
        max_fetch_wait_ms: how long a fetch may wait for records.
        ends_when_refused: raise an error also for a cause that an administrator can remove, such as a quarantine.

    Raises:
        UnknownTopicError: no processor was ever started on this log.
    """

    def __init__(
        self,
        log: Log,
        options: SourceOptions,
        last: AcquiredOffset,
        max_fetch_wait_ms: int,
        ends_when_refused: bool = False,
    ) -> None:
        self._log = log
        self._options = options
        self._ends_when_refused = ends_when_refused
        self._size = RangeSize(options.config)
        self._began_ms = 0
        self._refused_record_count = last.refused_record_count
        self._active_batch: AcquiredOffset | None = None
        self._acknowledged_number = 0
        self._lost_partitions: set[PartitionKey] = set()
        self._unconfirmed_batches: list[AcquiredOffset] = []
        self._renewed_ranges: list[HeldRange] = []
        self._next_renewal_s = 0.0
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._given_up: dict[int, tuple[Acknowledgement, ...]] = {}
        """Version of a write → acknowledgements of offsets that are in no batch; its commit has them."""
        config = options.config
        self._sink = ServedSink(config.sink, config.sink_values) if config.sink else None
        is_resumed = self._join(last.member_id, max_fetch_wait_ms)
        self._resolver = None if self._sink is None else WriteResolver(self.group_member, self._sink)
        self._event = partial(
            Event,
            group=options.config.group_id,
            client=options.config.client_id or None,
            member=self.group_member.member_id,
        )
        self._thread = threading.Thread(target=self._run, name="share-group-renewals", daemon=True)
        self._thread.start()
        self._is_subscribed = False
        if self._sink is None:
            self._subscribe()
        logger.info(self._event("started", topics=",".join(options.config.subscribe), resumed=is_resumed or None))

    def _join(self, member_id: str, max_fetch_wait_ms: int) -> bool:
        """Create the group member with its folder; return False if the member id is new."""
        # 1. Lock the folder of the earlier member id; a second query on a copy of the checkpoint gets an id of its own.
        self._folder = MemberFolder(member_id, self._options.acknowledgement_folder)
        is_resumed = bool(member_id) and self._folder.acquire(_PREDECESSOR_TIMEOUT_S)
        # 2. Join the group.
        settings = self._member_settings(member_id if is_resumed else "", max_fetch_wait_ms)
        try:
            self.group_member = GroupMember(self._log, settings)
        except ShareGroupError:
            self._folder.release(keeps_acknowledgements=True)
            raise
        # 3. Lock the folder of a new member id.
        if not is_resumed:
            self._folder = MemberFolder(self.group_member.member_id, self._options.acknowledgement_folder)
            self._folder.acquire(_PREDECESSOR_TIMEOUT_S)
        return is_resumed

    def _member_settings(self, member_id: str, max_fetch_wait_ms: int) -> MemberSettings:
        config = self._options.config
        return MemberSettings(
            group_id=config.group_id,
            client_id=config.client_id,
            fetch=FetchSettings(
                max_records=self._size.records,
                batch_size=config.max_poll_records,
                fetches_ahead=self._size.is_known,
                acquire_mode=AcquireMode(config.share_acquire_mode),
                max_wait_ms=max_fetch_wait_ms,
            ),
            topics=self._options.channel_topics,
            sends_refused_apart=True,
            may_return=True,
            sink=None if self._sink is None else self._sink.sink,
            member_id=member_id,
            first_correlation_id=1 + secrets.randbelow(2**30) if member_id else 1,
        )

    @property
    def active_batch(self) -> AcquiredOffset | None:
        """The batch whose locks are renewed, until it is acknowledged."""
        return self._active_batch

    def _subscribe(self) -> None:
        """Subscribe to the topics; with a sink not before it has the last batch: fetches may get its records again."""
        if not self._is_subscribed:
            self._is_subscribed = True
            self.group_member.subscribe(self._options.config.subscribe)

    def acquire(self, timeout_ms: int) -> Acquisition | None:
        """Return the readable ranges of the next acquisition; None if there is none in time."""
        self._subscribe()
        try:
            acquisition = self.group_member.next_acquisition(timeout_ms)
        except ApiError as error:
            if self.group_member.is_ended or self._ends_when_refused:
                raise
            # The member stays in the group, and resumes when an administrator has removed the cause.
            logger.warning(self._event("member_refused", error=error.name, reason=error))
            return None
        if acquisition is None:
            return None
        try:
            if self._sink is not None and acquisition.write is not None:
                self._sink.check(self.group_member.write_expiry_ms or WRITE_EXPIRY_MS)
            ranges, unreadable = without_unreadable(self._log, acquisition.ranges)
        except ShareGroupError as error:
            # The query ends; nothing has received these records, so that their delivery does not count.
            self.return_unread(acquisition.ranges, error.message)
            raise
        if ranges and acquisition.write is not None:
            self._given_up = {acquisition.write.version: tuple(unreadable)}
        else:
            self.group_member.acknowledge(unreadable)
        self._size.weigh(self._log, ranges)
        return Acquisition(tuple(ranges), acquisition.lock_deadline_ms, acquisition.lock_timeout_ms)

    def return_unread(self, ranges: Iterable[HeldRange], reason: str) -> None:
        """Return acquired records that belong to no batch; their delivery does not count."""
        acknowledgements = list(unread(ranges, reason))
        for version in {ack.write_version for ack in acknowledgements}:
            # A write that is not begun is given up as a whole.
            acknowledgements += self._given_up.pop(version, ())
        self.group_member.acknowledge(acknowledgements)

    def begin_batch(self, last: AcquiredOffset, acquisition: Acquisition) -> AcquiredOffset:
        """Make an acquisition the active batch, and return its offset.

        Args:
            last: the offset of the batch before.
        """
        number, write = last.number + 1, acquisition.write
        has_folder = self._options.is_explicit or write is not None
        batch = AcquiredOffset(
            number=number,
            member_id=self.group_member.member_id,
            lock_timeout_ms=acquisition.lock_timeout_ms,
            acknowledgement_folder=str(self._folder.batch_path(number)) if has_folder else "",
            refused_record_count=self._refused_record_count,
            ranges=acquisition.ranges,
            write=write,
            given_up=() if write is None else self._given_up.pop(write.version, ()),
        )
        self._activate(batch)
        is_new = last.number == 0 and self.group_member.standing().joined_with_partitions
        if is_new and write is None:
            logger.warning(self._event("new_checkpoint_of_known_group", reason=_BATCH_IDS_BEGIN, remedy=_NEW_NAME))
        return batch

    def resume_batch(self, last: AcquiredOffset, batch: AcquiredOffset) -> None:
        """Make a batch active that an earlier process began.

        The batch is read in any case. Records that are no longer held are not acknowledged: they are delivered again,
        to this member or to another one, and the acknowledgement is due for that delivery.

        Args:
            last: the batch before it, which is committed; its acknowledgements may or may not have been sent.
        """
        # 1. Acknowledge the committed batch.
        self.acknowledge_batch(last)
        self._subscribe()
        with self._lock:
            self._activate(batch)
            # 2. Renew the locks of the active one, and wait for the responses: they show which records are still held.
            self._renew()
            for result in self.group_member.flush(_RESPONSE_TIMEOUT_MS):
                if result.error is not None:
                    self._handle_lost_locks(result, result.error)

    def acknowledge_batch(self, batch: AcquiredOffset) -> None:
        """Acknowledge a batch that Spark has committed, once; with a sink, report what that says of it.

        Raises:
            InvalidRequestError: the sink has no write of the batch.
            SinkError: the sink cannot be read.
        """
        with self._lock:
            if batch.number <= self._acknowledged_number:
                return
            was_active = self._active_batch is not None and self._active_batch.number == batch.number
            resolved = self._resolved(batch)
            acknowledgements, released_count = ([], 0) if batch.write else acknowledgements_of(batch, self._log)
            if was_active:
                self._size.worked_off(sum(held.record_count for held in batch.ranges), self._began_ms, monotonic_ms())
                if self._sink is not None:
                    self.group_member.name_sink(self._sink.sink)
                self.group_member.fetch_next(self._size.records)
            self.group_member.acknowledge(ack for ack in acknowledgements if ack.key not in self._lost_partitions)
            self._lost_partitions.clear()
            self._active_batch, self._acknowledged_number = None, batch.number
            self._renewed_ranges = []
            if resolved is not None:
                self.group_member.report(resolved)
            self._unconfirmed_batches.append(batch)
            if not was_active:
                self._log_repetition(batch)
        if released_count:
            logger.warning(self._event("records_not_acknowledged", batch=batch.number, released=released_count))

    def _resolved(self, batch: AcquiredOffset) -> ResolveWriteRequest | None:
        """Return what the sink says of a committed batch; None if it has nothing to say, or if there is no sink."""
        if batch.write is None or self._sink is None:
            return None
        write = batch.write.unresolved
        try:
            resolved = self._sink.lookup(write)
            if resolved is not None and resolved.is_written:
                return resolved
            if (without_rows := acknowledgements_without_rows(batch, self._log)) is not None:
                self.group_member.acknowledge(without_rows if resolved is None else ())
                return resolved
            # The batch was executed without its write. The fence keeps a late one out.
            fenced = resolved or self._sink.resolve(write)
        except UndecidedWriteError as undecided:
            logger.warning(self._event("batch_undecided", batch=batch.number, reason=undecided))
            return None
        # A write that began, and was fenced, has left its mark; so does the error, and the next start goes on.
        is_lost = batch.folder is not None and batch.folder.claim_lost_write()
        if not fenced.is_written and (is_lost or resolved is None):
            raise InvalidRequestError(
                f"Spark has committed batch {batch.number} of group {self._options.config.group_id}, and the sink "
                f"{batch.write.address} has no write of it. Its records are not accepted, and come again.",
                "Write the results of each batch by write_once(batch, results), in foreachBatch and nowhere else.",
            )
        return fenced

    def close(self) -> None:
        """Leave the group; an active batch stays locked, for the process that resumes it."""
        # 1. Stop renewals.
        self._closed.set()
        self._thread.join()
        if self._resolver is not None:
            self._resolver.close()
        # 2. Leave. The restarted query repeats acknowledgements without a response, so it needs their folders.
        results = self.group_member.close(_CLOSE_TIMEOUT_MS, keeps_locks=self._active_batch is not None)
        is_unconfirmed = any(isinstance(result.error, RequestTimedOutError) for result in results)
        if is_unconfirmed:
            self._unconfirmed_batches.clear()
        self._handle_results(results)
        # 3. Unlock the folder.
        is_needed = is_unconfirmed or self._active_batch is not None
        has_folders = self._options.is_explicit or self._sink is not None
        self._folder.release(keeps_acknowledgements=is_needed and has_folders)
        logger.info(self._event("left"))

    def _activate(self, batch: AcquiredOffset) -> None:
        with self._lock:
            # Refusals so far concern earlier deliveries of its records.
            self._handle_results(self.group_member.take_results())
            if batch.folder is not None:
                batch.folder.create(batch.ranges)
            self._active_batch, self._began_ms = batch, monotonic_ms()
            self._renewed_ranges = list(batch.ranges)
            self._next_renewal_s = _next_renewal_s(batch)

    def _renew(self) -> None:
        """Renew the locks of the active batch."""
        self.group_member.acknowledge(held.acknowledgement(AcknowledgeType.RENEW) for held in self._renewed_ranges)

    def _run(self) -> None:
        """Renew the locks of the active batch, and handle the results of acknowledgements, until the member closes."""
        while not self._closed.wait(_POLL_S):
            try:
                with self._lock:
                    self._handle_results(self.group_member.take_results())
                    if self._active_batch is not None and time.monotonic() >= self._next_renewal_s:
                        self._next_renewal_s = _next_renewal_s(self._active_batch)
                        self._renew()
            except ShareGroupError as error:
                # The next fetch of the query raises the error.
                logger.warning(self._event("renewals_ended", reason=error))
                return

    def _handle_results(self, results: Iterable[Acknowledged]) -> None:
        for result in results:
            if result.error is not None:
                self._handle_refusal(result, result.error)
        if not self.group_member.unconfirmed_partitions():
            for batch in self._unconfirmed_batches:
                if batch.folder is not None:
                    batch.folder.delete()
            self._unconfirmed_batches.clear()

    def _handle_refusal(self, result: Acknowledged, error: ShareGroupError) -> None:
        types = {ack.acknowledge_type for ack in result.acknowledgements}
        final = [ack for ack in result.acknowledgements if ack.acknowledge_type in _FINAL_TYPES]
        self._refused_record_count += _record_count(final)
        # Renewals of records that are no longer held would have other acknowledgements of the partition refused.
        self._renewed_ranges = without_refused(self._renewed_ranges, [result])
        event = self._event(
            "acknowledgement_failed",
            share_partition=f"{result.topic}-{result.partition}",
            first_offset=min(ack.first_offset for ack in result.acknowledgements),
            last_offset=max(ack.last_offset for ack in result.acknowledgements),
            types=",".join(sorted(acknowledge_type.name.lower() for acknowledge_type in types)),
            refused_records=self._refused_record_count,
            reason=error,
        )
        logger.warning(event)

    def _handle_lost_locks(self, result: Acknowledged, error: ShareGroupError) -> None:
        """Exclude a partition from acknowledgement and renewal: its locks ended before they were renewed."""
        self._renewed_ranges = without_refused(self._renewed_ranges, [result])
        self._lost_partitions.update(ack.key for ack in result.acknowledgements)
        lost_count = _record_count(result.acknowledgements)
        self._refused_record_count += lost_count
        partition = f"{result.topic}-{result.partition}"
        logger.warning(self._event("acquisition_lost", share_partition=partition, records=lost_count, reason=error))

    def _log_repetition(self, batch: AcquiredOffset) -> None:
        """Log the response to a repeated acknowledgement; it is refused if the earlier process had sent it."""
        refused = [result for result in self.group_member.flush(_RESPONSE_TIMEOUT_MS) if result.error is not None]
        logger.info(self._event("acknowledged_again", batch=batch.number, refused_partitions=len(refused)))


def _record_count(acknowledgements: Iterable[Acknowledgement]) -> int:
    return sum(len(acknowledgement.offsets) for acknowledgement in acknowledgements)


def _next_renewal_s(batch: AcquiredOffset) -> float:
    return time.monotonic() + batch.lock_timeout_ms / 1000 / _RENEWALS_PER_LOCK
