"""The member of a query: acquires the next batch, renews the locks of the one at work, acknowledges the committed one.

It lives in the process that Spark starts on the driver for each stream of a Python source; threads of its own
heartbeat, fetch ahead and renew. The member id is in every offset, so a query that is started again goes on being the
member that holds its batch, as long as the locks last.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterable

from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey
from sharegroup.client.acquisition import Acquisition, HeldRange, unread
from sharegroup.client.group_member import GroupMember
from sharegroup.client.session_events import Acknowledged
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import GroupQuarantinedError, RequestTimedOutError, ShareGroupError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log
from sharegroup.spark.acquired_records import readable
from sharegroup.spark.share_group_source_acknowledgements import acknowledgements_of, delete_folder, make_folder
from sharegroup.spark.share_group_source_config import SourceOptions
from sharegroup.spark.share_group_source_folder import MemberFolder
from sharegroup.spark.share_group_source_offset import AcquiredOffset

logger = logging.getLogger(__name__)

_ANSWER_TIMEOUT_MS = 10_000
_CLOSE_TIMEOUT_MS = 5_000
_PREDECESSOR_TIMEOUT_S = 10.0
"""Longer than it takes a member to leave."""
_LOOK_S = 0.1
_RENEWALS_PER_LOCK = 3
_JUDGEMENTS = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)


class ShareGroupSourceMember:
    """A query's membership of its share group.

    Args:
        log: where the requests, the responses and the records are; to be closed after the member.
        options: what the query was told.
        last: the query's latest offset; its member is gone on with, if it has one.
        longest_fetch_ms: how long a fetch may wait for records.

    Raises:
        UnknownTopicError: no processor was ever started on this log.
    """

    def __init__(self, log: Log, options: SourceOptions, last: AcquiredOffset, longest_fetch_ms: int) -> None:
        self._log = log
        self._options = options
        self._refused_count = last.refused_record_count
        self._at_work: AcquiredOffset | None = None
        self._settled = AcquiredOffset()
        self._lost_partitions: set[PartitionKey] = set()
        self._unanswered: list[AcquiredOffset] = []
        self._next_renewal_s = 0.0
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._folder = MemberFolder(last.member_id)
        goes_on = bool(last.member_id) and self._folder.acquire(_PREDECESSOR_TIMEOUT_S)
        settings = _member_settings(options, last.member_id if goes_on else "", longest_fetch_ms)
        try:
            self.member = GroupMember(log, settings)
        except ShareGroupError:
            self._folder.release(keeps_acknowledgements=True)
            raise
        if not goes_on:
            self._folder = MemberFolder(self.member.member_id)
            self._folder.acquire(_PREDECESSOR_TIMEOUT_S)
        self._thread = threading.Thread(target=self._keep, name="share-group-renewals", daemon=True)
        self._thread.start()
        self.member.subscribe(options.config.subscribe)
        logger.info(self._event("started", topics=",".join(options.config.subscribe), goes_on=goes_on or None))

    @property
    def at_work(self) -> AcquiredOffset | None:
        """The batch whose locks are renewed, until it is settled."""
        return self._at_work

    def acquire(self, timeout_ms: int) -> Acquisition | None:
        """What can be read of the next acquisition; None when the time is over first."""
        try:
            acquisition = self.member.next_acquisition(timeout_ms)
        except GroupQuarantinedError as error:
            # The member stays in the group, and goes on when an administrator resumes it.
            logger.warning(self._event("group_quarantined", reason=error))
            return None
        if acquisition is None:
            return None
        held, gaps = readable(self._log, acquisition.ranges)
        self.member.acknowledge(gaps)
        return Acquisition(tuple(held), acquisition.lock_deadline_ms, acquisition.lock_timeout_ms)

    def give_back(self, ranges: Iterable[HeldRange], reason: str) -> None:
        """Take the delivery of records back that no batch has."""
        self.member.acknowledge(unread(ranges, reason))

    def begin(self, last: AcquiredOffset, acquisition: Acquisition) -> AcquiredOffset:
        """Make a batch of an acquisition, and renew its locks until it is settled.

        Args:
            last: the offset before it.
            acquisition: the records.
        """
        number = last.number + 1
        offset = AcquiredOffset(
            number,
            self.member.member_id,
            acquisition.lock_timeout_ms,
            acquisition.lock_deadline_ms,
            str(self._folder.of_batch(number)) if self._options.is_explicit else "",
            self._refused_count,
            acquisition.ranges,
        )
        self._work_on(offset)
        return offset

    def resume(self, before: AcquiredOffset, offset: AcquiredOffset) -> None:
        """Take a batch up again that an earlier process began.

        It is read in any case. What is not held any more is not acknowledged: it is delivered again, to this member or
        to another one, and the acknowledgement is due for that delivery.

        Args:
            before: the batch before it, which is committed; whether all its acknowledgements were sent is not known.
            offset: the batch.
        """
        self.settle(before)
        with self._lock:
            self._work_on(offset)
            self.member.acknowledge(_renewals(offset))
            for result in self.member.flush(_ANSWER_TIMEOUT_MS):
                if result.error is not None:
                    self._lost(result, result.error)

    def settle(self, offset: AcquiredOffset) -> None:
        """Acknowledge a batch that Spark has committed; one that is settled already is left alone."""
        with self._lock:
            if offset.number <= self._settled.number:
                return
            is_at_work = self._at_work is not None and self._at_work.number == offset.number
            said = acknowledgements_of(offset, self._log)
            self.member.acknowledge(found for found in said.acknowledgements if found.key not in self._lost_partitions)
            self._lost_partitions.clear()
            self._at_work, self._settled = None, offset
            self._unanswered.append(offset)
            if not is_at_work:
                self._log_repetition(offset)
        if said.unmentioned_count:
            count = said.unmentioned_count
            logger.warning(self._event("records_not_acknowledged", batch=offset.number, released=count))

    def close(self) -> None:
        """Leave the group; a batch that is at work stays locked, for a process that takes it up again."""
        self._closed.set()
        self._thread.join()
        results = self.member.close(_CLOSE_TIMEOUT_MS, keeps_locks=self._at_work is not None)
        # What was not answered is said again when the query is started again.
        is_unsure = any(isinstance(result.error, RequestTimedOutError) for result in results)
        if is_unsure:
            self._unanswered.clear()
        self._note(results)
        is_needed = is_unsure or self._at_work is not None
        self._folder.release(keeps_acknowledgements=is_needed and self._options.is_explicit)
        logger.info(self._event("left"))

    def _lost(self, result: Acknowledged, error: ShareGroupError) -> None:
        """The locks of a partition's records ended before they were renewed."""
        self._lost_partitions.update(found.key for found in result.acknowledgements)
        lost_count = sum(len(found.offsets) for found in result.acknowledgements)
        self._refused_count += lost_count
        place = f"{result.topic}-{result.partition}"
        logger.warning(self._event("acquisition_lost", share_partition=place, records=lost_count, reason=error))

    def _log_repetition(self, offset: AcquiredOffset) -> None:
        """What an earlier process committed was most likely acknowledged by it; then it is not held any more."""
        refused = [result for result in self.member.flush(_ANSWER_TIMEOUT_MS) if result.error is not None]
        logger.info(self._event("acknowledged_again", batch=offset.number, refused_partitions=len(refused)))

    def _work_on(self, offset: AcquiredOffset) -> None:
        with self._lock:
            make_folder(offset)
            self._at_work = offset
            self._next_renewal_s = _next_renewal_s(offset)

    def _keep(self) -> None:
        """Renew what is at work, and note what became of acknowledgements, until the end."""
        while not self._closed.wait(_LOOK_S):
            try:
                with self._lock:
                    self._note(self.member.take_results())
                    if self._at_work is not None and time.monotonic() >= self._next_renewal_s:
                        self._next_renewal_s = _next_renewal_s(self._at_work)
                        self.member.acknowledge(_renewals(self._at_work))
            except ShareGroupError as error:
                # The query learns it when it asks for records.
                logger.warning(self._event("renewals_ended", reason=error))
                return

    def _note(self, results: Iterable[Acknowledged]) -> None:
        for result in results:
            if result.error is not None:
                self._note_refused(result, result.error)
        if not self.member.unanswered_partitions():
            for offset in self._unanswered:
                delete_folder(offset)
            self._unanswered.clear()

    def _note_refused(self, result: Acknowledged, error: ShareGroupError) -> None:
        kinds = {found.acknowledge_type for found in result.acknowledgements}
        judged = [found for found in result.acknowledgements if found.acknowledge_type in _JUDGEMENTS]
        self._refused_count += sum(len(found.offsets) for found in judged)
        if AcknowledgeType.RENEW in kinds and self._at_work is not None:
            # What is not held any more is renewed in vain, and would have other acknowledgements refused.
            self._next_renewal_s = float("inf")
        failed = self._event(
            "acknowledgement_failed",
            share_partition=f"{result.topic}-{result.partition}",
            first_offset=min(found.first_offset for found in result.acknowledgements),
            last_offset=max(found.last_offset for found in result.acknowledgements),
            kinds=",".join(sorted(kind.name.lower() for kind in kinds)),
            refused_records=self._refused_count,
            reason=error,
        )
        logger.warning(failed)

    def _event(self, name: str, **fields: object) -> Event:
        config = self._options.config
        ids = {"group": config.group_id, "client": config.client_id or None, "member": self.member.member_id}
        return Event(name, **ids, **fields)


def _member_settings(options: SourceOptions, member_id: str, longest_fetch_ms: int) -> MemberSettings:
    config = options.config
    return MemberSettings(
        group_id=config.group_id,
        client_id=config.client_id,
        fetch=FetchSettings(
            max_records=config.max_poll_records,
            batch_size=config.max_poll_records,
            acquire_mode=AcquireMode(config.share_acquire_mode),
            max_wait_ms=longest_fetch_ms,
        ),
        topics=options.channel_topics,
        member_id=member_id,
        first_correlation_id=1 + secrets.randbelow(2**30) if member_id else 1,
    )


def _renewals(offset: AcquiredOffset) -> list[Acknowledgement]:
    return [held.acknowledgement(AcknowledgeType.RENEW) for held in offset.ranges]


def _next_renewal_s(offset: AcquiredOffset) -> float:
    return time.monotonic() + offset.lock_timeout_ms / 1000 / _RENEWALS_PER_LOCK
