"""Deliveries that end without an acknowledgement: locks that are due, and members that are silent or gone."""

from __future__ import annotations

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.holders import Holders
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.member_silence import MemberSilence
from sharegroup.actor.share_requests import ShareRequests
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.core.record_state import Cause
from sharegroup.core.records import SharePartitionLimits, Transition
from sharegroup.protocol.api_key import INTERNAL_KEYS
from sharegroup.protocol.group_messages import JOIN_EPOCH, LEAVE_EPOCH, ShareGroupHeartbeatRequest
from sharegroup.protocol.internal_messages import MemberEnded
from sharegroup.protocol.messages import parsed


class HolderLiveness:
    """Follows the signs of life of the members that hold records, and ends the locks of those that give none."""

    def __init__(
        self,
        sessions: ShareSessions,
        partitions: LedPartitions,
        holders: Holders,
        silence: MemberSilence,
        requests: ShareRequests,
        leader_epoch: int,
    ) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._holders = holders
        self._silence = silence
        self._requests = requests
        self._leader_epoch = leader_epoch

    def expire_locks(self, message: LoggedRequest, limits: SharePartitionLimits) -> None:
        """End the locks that are due at the time of a message."""
        holders: set[str] = set()
        for led in self._partitions.take_due_locks(message.time_ms):
            ended = led.share_partition.expire_locks(limits, message.time_ms)
            self._partitions.record(led, ended, message.time_ms, message.offset)
            holders.update(record.member_id for record in ended if isinstance(record, Transition))
        for member_id in sorted(holders):
            # If the member has crashed, its fetch would lock the records once more; a live one sends another fetch.
            session = self._sessions.get(member_id)
            if session is not None:
                self._requests.respond_without_records(session, message.time_ms)

    def note_sender(self, message: LoggedRequest, limits: SharePartitionLimits) -> None:
        """Reset the silence of a message's sender; the processor's own message shows that the log works."""
        envelope = message.envelope
        if envelope.api_key not in INTERNAL_KEYS:
            self._silence.heard(envelope.member_id, message.time_ms)
        elif envelope.leader_epoch == self._leader_epoch:
            for member_id in self._silence.take_silent(message.time_ms, self._holders.member_ids):
                self._release(member_id, message, limits, Cause.MEMBER_SILENT)

    def heartbeat(self, message: LoggedRequest) -> None:
        """Record the process of a member that joins or leaves; the coordinator handles all else."""
        member_id, member_epoch = message.envelope.member_id, message.envelope.body.get("member_epoch")
        if member_epoch == LEAVE_EPOCH:
            self._holders.forget(member_id)
        if isinstance(member_epoch, int) and member_epoch != JOIN_EPOCH:
            return
        body = parsed(ShareGroupHeartbeatRequest, message.envelope.body)
        if body.member_epoch == JOIN_EPOCH:
            self._holders.record_join(member_id, body.client_process)

    def member_alive(self, message: LoggedRequest) -> None:
        """Count the silence of a member from now on: another process gives its signs of life."""
        member_id = message.envelope.member_id
        if member_id in self._holders.member_ids:
            self._silence.watch(member_id, message.time_ms)

    def member_ended(self, message: LoggedRequest, limits: SharePartitionLimits) -> None:
        """Release all records of a member whose process has ended."""
        member_id = parsed(MemberEnded, message.envelope.body).member_id
        self._release(member_id, message, limits, Cause.MEMBER_ENDED)
        self._holders.forget(member_id)
        session = self._sessions.get(member_id)
        if session is not None:
            self._sessions.close(session)

    def _release(self, member_id: str, message: LoggedRequest, limits: SharePartitionLimits, cause: Cause) -> None:
        """Release all records of a member that is gone, and acquire no more for it."""
        session = self._sessions.get(member_id)
        if session is not None:
            self._requests.respond_without_records(session, message.time_ms)
        for led in self._partitions.held_by(member_id):
            released = led.share_partition.release_member(member_id, limits, message.time_ms, cause)
            self._partitions.record(led, released, message.time_ms, message.offset)
