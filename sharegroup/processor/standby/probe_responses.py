"""Responses to the probes of standbys, from the active processor: while it folds, while it works, and when it leaves.

Without a standby there is nothing to respond to: a takeover of less than a second reads nothing for it, and a processor
that leaves says so only to standbys that have probed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.decoding import decoded_message, refusal
from sharegroup.actor.effects import Effect, Respond, Undecodable, address_of, response_to
from sharegroup.actor.mailbox import version_refusal
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.event_log import Event
from sharegroup.logs.port import Follower, Log, LogRecord, NewRecord
from sharegroup.processor.part import Part
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.standby_messages import ProcessorState, StandbyProbeResponse

logger = logging.getLogger("sharegroup.processor")

PROBE_MARK = f'"api_key":{ApiKey.STANDBY_PROBE.value}'.encode()
"""Part of the value of each probe, by which it is found among other messages."""
MAX_STANDBYS = 16
"""Standbys that are notified when the processor leaves: each process that may append requests may call itself one."""

_QUICK_S = 1.0
"""Duration of a takeover that needs no responses: no standby's patience is shorter."""
_POLL_MS = 200
_READ_AT_ONCE = 10_000
_MAX_BYTES = 16 * 1024 * 1024


class KnownStandbys:
    """The standbys that a processor has responded to."""

    def __init__(self, leader_epoch: int) -> None:
        self._leader_epoch = leader_epoch
        self._last_probes: dict[str, LoggedRequest] = {}

    def respond(self, probe: LoggedRequest) -> Effect:
        """Return the response to a probe that is applied."""
        effect = probe_response(probe, self._leader_epoch, ProcessorState.ACTIVE)
        if isinstance(effect, Respond) and version_refusal(probe.envelope) is None:
            self._last_probes.pop(probe.envelope.member_id, None)
            self._last_probes[probe.envelope.member_id] = probe
            if len(self._last_probes) > MAX_STANDBYS:
                del self._last_probes[next(iter(self._last_probes))]
        return effect

    def leaving(self) -> list[Respond]:
        """Return the responses that report to all standbys that the processor leaves."""
        responses = (
            probe_response(probe, self._leader_epoch, ProcessorState.LEAVING)
            for probe in self._last_probes.copy().values()
        )
        return [response for response in responses if isinstance(response, Respond)]


def probe_response(probe: LoggedRequest, leader_epoch: int, state: ProcessorState) -> Effect:
    """Return the response to a probe; its refusal if it has another version, its count if it has no address.

    Args:
        state: what the processor does.
    """
    envelope = probe.envelope
    if envelope.reply_partition < 0:
        return Undecodable(probe.offset, "A probe of a standby asks for no response.")
    if (error := version_refusal(envelope)) is not None:
        return refusal(envelope.encoded(), probe.offset, error, leader_epoch)
    return response_to(address_of(envelope), StandbyProbeResponse(state=state), leader_epoch)


def append_responses(log: Log, config: ProcessorConfig, responses: Iterable[Respond]) -> None:
    """Append responses that rest on no commit.

    Raises:
        LogError: the log cannot be written.
    """
    topic, partition_count = config.response_topic_name, config.response_topic_partitions
    batches = [
        (topic, address.partition, [NewRecord(address.member_id.encode(), response.value.encode())])
        for response in responses
        if (address := response.address).partition < partition_count
    ]
    if batches:
        log.append_all(batches)


class FoldingResponses:
    """Responds to probes from the fence of a takeover until its loop does, in a thread of its own."""

    def __init__(self, log: Log, config: ProcessorConfig) -> None:
        self._log = log
        self._config = config
        self._leader_epoch = -1
        self._part = Part("folding-responses", self._run, self._failed)

    def begin(self, leader_epoch: int) -> None:
        """Respond to probes from now on, after the fence of this epoch."""
        self._leader_epoch = leader_epoch
        self._part.start()

    def end(self) -> None:
        """Respond to no more probes; returns when the last response is appended."""
        self._part.stop()

    def _run(self) -> None:
        if self._part.is_stopping.wait(_QUICK_S):
            return
        follower = self._log.follow(self._config.request_topic_name, self._ends())
        try:
            self._respond(follower, self._leader_epoch)
        finally:
            follower.close()

    def _failed(self, error: BaseException) -> None:
        # The takeover meets the same error, or is fenced by a standby that hears nothing.
        logger.warning(Event("probe_responses_failed", reason=str(error)))

    def _respond(self, follower: Follower, leader_epoch: int) -> None:
        while not self._part.is_stopping.is_set():
            responses = folding_responses(follower.take(_READ_AT_ONCE, _MAX_BYTES, _POLL_MS), leader_epoch)
            append_responses(self._log, self._config, responses)

    def _ends(self) -> Mapping[int, int]:
        offsets = self._log.offsets(self._config.request_topic_name)
        return {partition: of.end_offset for partition, of in offsets.items()}


def folding_responses(records: Iterable[LogRecord], leader_epoch: int) -> list[Respond]:
    """Return the responses of a processor that folds to the probes among some messages."""
    responses: list[Respond] = []
    for record in records:
        if PROBE_MARK not in (record.value or b""):
            continue
        message = decoded_message(record.value, record.offset, record.timestamp_ms, leader_epoch)
        if isinstance(message, LoggedRequest) and message.envelope.api_key == ApiKey.STANDBY_PROBE:
            response = probe_response(message, leader_epoch, ProcessorState.FOLDING)
            responses += [response] if isinstance(response, Respond) else []
    return responses
