"""The exchange of a member with its processor: requests, pauses after failures, and the processor that counts.

No I/O, no clock. Leader epochs rise within one state table. With a table that was created again they restart.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message, ResponseEnvelope

FIRST_PAUSE_MS = 100
"""Kafka's retry.backoff.ms."""
LONGEST_PAUSE_MS = 1_000
"""Kafka's retry.backoff.max.ms."""

Body = TypeVar("Body", bound=Message, covariant=True)


class Request(NamedTuple, Generic[Body]):
    """A request to send; a repetition has the same correlation id."""

    correlation_id: int
    api_key: ApiKey
    body: Body


class Backoff:
    """The time of the next attempt after failures; `until_ms` is 0 while there is no pause."""

    def __init__(self) -> None:
        self.until_ms = 0
        self._failures = 0

    def failed(self, now_ms: int) -> None:
        """Begin a pause, twice as long as the last one."""
        self.until_ms = now_ms + min(FIRST_PAUSE_MS << min(self._failures, 10), LONGEST_PAUSE_MS)
        self._failures += 1

    def succeeded(self) -> None:
        """Reset: the next pause is the shortest one."""
        self.until_ms = 0
        self._failures = 0

    def is_over(self, now_ms: int) -> bool:
        """Return True if no pause is left."""
        if now_ms >= self.until_ms:
            self.until_ms = 0
        return not self.until_ms


class FollowedProcessor:
    """Leader epoch and state table of the latest processor."""

    def __init__(self) -> None:
        self.leader_epoch = -1
        """Leader epoch of the latest processor; -1 before the first response."""
        self.state_id = ""
        """Id of its state table; "" while it is unknown."""
        self._has_changed_table = False

    def is_of_other_table(self, envelope: ResponseEnvelope) -> bool:
        """Return True if a response names another state table than the one before."""
        state_id = _state_id(envelope)
        return bool(state_id and self.state_id) and state_id != self.state_id

    def follow_other_table(self, envelope: ResponseEnvelope) -> None:
        """Accept the processors of the state table that a response names."""
        self.state_id, self.leader_epoch, self._has_changed_table = _state_id(envelope), -1, True

    def is_outdated(self, envelope: ResponseEnvelope) -> bool:
        """Return True if a response is of an earlier processor, or may be of an earlier state table."""
        # After a second table, a higher epoch alone does not show that its processor is the later one.
        is_of_unknown_table = (
            self._has_changed_table and not _state_id(envelope) and envelope.leader_epoch > self.leader_epoch
        )
        return envelope.leader_epoch < self.leader_epoch or is_of_unknown_table

    def follow(self, envelope: ResponseEnvelope) -> bool:
        """Accept a response; return True if the session must be opened again after a takeover.

        A response of the session itself reports the takeover to the session.
        """
        self.state_id = _state_id(envelope) or self.state_id
        is_first, is_new = self.leader_epoch < 0, envelope.leader_epoch > self.leader_epoch
        self.leader_epoch = envelope.leader_epoch
        is_announced = envelope.api_key == ApiKey.PROCESSOR_STARTED
        is_of_session = envelope.api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
        return is_new and (is_announced or not (is_first or is_of_session))


def _state_id(envelope: ResponseEnvelope) -> str:
    """Return the id of the state table in an announcement or a response to a heartbeat; "" without one."""
    if envelope.api_key not in (ApiKey.PROCESSOR_STARTED, ApiKey.SHARE_GROUP_HEARTBEAT):
        return ""
    state_id = envelope.body.get("state_id", "")
    return state_id if isinstance(state_id, str) else ""
