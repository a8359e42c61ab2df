"""The eyes and hands of a standby: it follows request log, response log, state table and lock files, and probes.

`step` does all of it once, without a thread; the simulator calls it in virtual time. `Standby` decides.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ApiError, LogError, StateTableError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Follower, Log, LogRecord, NewRecord
from sharegroup.processor.standby.probe_responses import PROBE_MARK
from sharegroup.processor.standby.standby import Standby
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_request, decoded_response, parsed, request
from sharegroup.protocol.standby_messages import StandbyProbeRequest, StandbyProbeResponse

logger = logging.getLogger("sharegroup.processor")

TABLE_POLL_S = 1.0
"""Interval of the polls of the state table; one that an announcement asks for comes at once."""

_READ_AT_ONCE = 10_000
_MAX_BYTES = 16 * 1024 * 1024
_WARM_UP = -1
"""Number of a probe that counts for nothing but its response, which is a sign of life."""
_ANNOUNCEMENT_MARK = f'"api_key":{ApiKey.PROCESSOR_STARTED.value}'.encode()


class FollowedState(Protocol):
    """The state table that a standby follows; see `FollowedTable`."""

    @property
    def commit_id(self) -> int:
        """Return the last commit that was followed."""
        ...

    @property
    def followed_epoch(self) -> int:
        """Return the highest leader epoch that was followed."""
        ...

    def follow(self) -> None:
        """Apply the commits since the last call; raises StateTableError."""
        ...


class EndedProcessors(Protocol):
    """The processors whose process is known to have ended; see `ProcessorLocks`."""

    def ended_epochs(self) -> list[int]:
        """Return their leader epochs."""
        ...


class StandbyWatch:
    """Follows the active processor for a standby, for one thread.

    Args:
        standby: the decision; it outlives this watch.
        ended: processors whose process has ended.
        monotonic_s: a clock for durations, in seconds.
        standby_id: id to which responses to probes go; a new one by default.
    """

    def __init__(
        self,
        standby: Standby,
        log: Log,
        config: ProcessorConfig,
        table: FollowedState,
        ended: EndedProcessors,
        monotonic_s: Callable[[], float] = time.monotonic,
        standby_id: str = "",
    ) -> None:
        self._standby = standby
        self._log = log
        self._config = config
        self._table = table
        self._ended = ended
        self._monotonic_s = monotonic_s
        self._id = standby_id or f"standby-{uuid.uuid4()}"
        self._partition = partition_for(self._id, config.request_topic_partitions)
        self._reply_partition = partition_for(self._id, config.response_topic_partitions)
        self._requests: Follower | None = None
        self._responses: Follower | None = None
        self._polled_s: float | None = None
        self._last_commit_id: int | None = None
        self._is_away = False
        self._has_followed = False
        self._sent = self._returned = _WARM_UP

    def step(self, timeout_ms: int = 0) -> bool:
        """Poll log and table, and send a probe that is due; return True when it is time to take over.

        Args:
            timeout_ms: how long to wait for a response.
        """
        now_s = self._monotonic_s()
        self._standby.step(now_s)
        try:
            self._poll_log(timeout_ms)
            self._log_is(True)
        except LogError as error:
            if isinstance(error, UnknownTopicError) and not self._has_followed:
                # Nobody has made the topics, or they are lost: a processor makes them.
                return self._poll_table()
            self._standby.log_away(self._monotonic_s())
            self._log_is(False, error)
            self._close_followers()
            return False
        self._poll_table()
        for epoch in self._ended.ended_epochs():
            self._standby.processor_ended(epoch)
        return self._standby.is_due(self._monotonic_s())

    @property
    def is_log_there(self) -> bool:
        """Return True if the log could be reached in the last step."""
        return not self._is_away

    @property
    def awaits_probe(self) -> bool:
        """Return True until the last probe came back: a step waits for responses, and does not notice it."""
        return self._returned < self._sent

    def warm_up(self, log: Log) -> None:
        """Use the log of the processor to be as its takeover does: read both topics, and append a probe.

        Raises:
            LogError: the log cannot be used.
        """
        for topic in (self._config.request_topic_name, self._config.response_topic_name):
            log.describe_topic(topic)
            for partition, offsets in log.offsets(topic).items():
                first = max(offsets.start_offset, offsets.end_offset - 1)
                log.read(topic, partition, first, offsets.end_offset)
        self._append_probe(log, _WARM_UP)

    def wake(self) -> None:
        """End the current or the next wait of a step early; any thread may call it."""
        if self._responses is not None:
            self._responses.wake()

    def close(self) -> None:
        """Release all resources."""
        self._close_followers()

    def _poll_log(self, timeout_ms: int) -> None:
        requests, responses = self._followers()
        number = self._standby.due_probe(self._monotonic_s())
        if number is not None:
            self._append_probe(self._log, number)
            self._sent = number
        # All that is there is read before anything is decided; probes come before responses, so the request log first.
        while records := requests.take(_READ_AT_ONCE, _MAX_BYTES, 0):
            for record in records:
                self._read_request(record)
        while records := responses.take(_READ_AT_ONCE, _MAX_BYTES, timeout_ms):
            timeout_ms = 0
            for record in records:
                self._read_response(record)

    def _append_probe(self, log: Log, number: int) -> None:
        envelope = request(
            ApiKey.STANDBY_PROBE,
            "",
            StandbyProbeRequest(),
            member_id=self._id,
            client_id="standby",
            correlation_id=number,
            reply_partition=self._reply_partition,
        )
        record = NewRecord(None, envelope.encoded())
        log.append(self._config.request_topic_name, self._partition, [record])

    def _read_request(self, record: LogRecord) -> None:
        value = record.value or b""
        if PROBE_MARK not in value and _ANNOUNCEMENT_MARK not in value:
            return
        try:
            envelope = decoded_request(value)
        except ApiError:
            return
        if envelope.api_key == ApiKey.STANDBY_PROBE and envelope.member_id == self._id:
            self._returned = max(self._returned, envelope.correlation_id)
            self._standby.probe_returned(envelope.correlation_id, self._monotonic_s())
        elif envelope.api_key == ApiKey.PROCESSOR_STARTED:
            # The table has the epoch, too: an announcement is only a reason to poll it.
            self._polled_s = None

    def _read_response(self, record: LogRecord) -> None:
        if record.key != self._id.encode():
            return
        try:
            envelope = decoded_response(record.value)
            # A processor of an earlier release refuses probes, which is a response.
            response = parsed(StandbyProbeResponse, envelope.body)
        except ApiError:
            return
        now_s = self._monotonic_s()
        self._standby.response_received(envelope.correlation_id, envelope.leader_epoch, response.state, now_s)

    def _poll_table(self) -> bool:
        """Follow the state table when it is time; return False if it is away."""
        now_s, polled_s = self._monotonic_s(), self._polled_s
        if polled_s is not None and now_s - polled_s < TABLE_POLL_S:
            return True
        try:
            self._table.follow()
        except StateTableError as error:
            self._standby.table_away(self._monotonic_s())
            logger.debug(Event("standby_table_away", reason=str(error)))
            return False
        self._polled_s = now_s
        commit_id, epoch = self._table.commit_id, self._table.followed_epoch
        is_new = self._last_commit_id not in (None, commit_id)
        if is_new and polled_s is not None and epoch == self._standby.leader_epoch:
            # It was made after the poll before this one; when, is not known.
            self._standby.processor_committed(polled_s)
        self._last_commit_id = commit_id
        self._standby.table_read(epoch)
        return True

    def _followers(self) -> tuple[Follower, Follower]:
        if self._requests is None or self._responses is None:
            config = self._config
            self._requests = self._tail(config.request_topic_name, self._partition)
            self._responses = self._tail(config.response_topic_name, self._reply_partition)
            self._has_followed = True
        return self._requests, self._responses

    def _tail(self, topic: str, partition: int) -> Follower:
        end_offset = self._log.offsets(topic, [partition])[partition].end_offset
        return self._log.follow(topic, {partition: end_offset})

    def _close_followers(self) -> None:
        for follower in (self._requests, self._responses):
            if follower is not None:
                follower.close()
        self._requests = self._responses = None

    def _log_is(self, is_there: bool, error: LogError | None = None) -> None:
        if self._is_away == is_there:
            self._is_away = not is_there
            if is_there:
                logger.info(Event("standby_log_is_back"))
            else:
                logger.warning(Event("standby_log_away", reason=str(error)))
