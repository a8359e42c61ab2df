"""How long a processor has had nothing to do: no members that may send requests, no messages to apply."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from sharegroup.actor.effects import Persist
from sharegroup.protocol.group_records import ShareGroupMemberMetadata, ShareGroupMemberRemoved, group_record
from sharegroup.protocol.rows import RecordType
from sharegroup.spark.actor_function import ActorOutput
from sharegroup.spark.recovery import Takeover


class GroupActivity:
    """Members of all groups and the applied part of the request log, as the committed batches tell.

    Args:
        takeover: what the processor starts from.
        monotonic_s: a clock for durations, in seconds.
    """

    def __init__(self, takeover: Takeover, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = monotonic_s
        self._busy_at_s = monotonic_s()
        self._lock = threading.Lock()
        self._members = {
            (group.group_id, member_id)
            for group in takeover.folded.groups.values()
            for member_id in group.metadata.members
        }
        self._ends = dict(takeover.last_marker[1] if takeover.last_marker else takeover.identity.start_offsets)

    def committed(self, outputs: Sequence[ActorOutput]) -> None:
        """Take in a batch after its commit."""
        rows = [effect.row for output in outputs for effect in output.effects if isinstance(effect, Persist)]
        with self._lock:
            self._busy_at_s = self._now_s()
            for output in outputs:
                partition = output.request_partition
                self._ends[partition] = max(self._ends.get(partition, 0), output.end_offset)
            for row in rows:
                if row.record_type is RecordType.GROUP_METADATA:
                    for fields in row.payload.get("records", []):
                        self._apply(row.group_id, fields)

    def idle_s(self, end_offsets: Mapping[int, int], is_writing: bool = False) -> float | None:
        """For how long nothing has been left to do; None while a group has a member, or something is left.

        Args:
            end_offsets: partition of the request log → its end offset.
            is_writing: whether there is something to be written for a group.
        """
        with self._lock:
            if self._members or is_writing or any(self._ends.get(p, 0) < end for p, end in end_offsets.items()):
                self._busy_at_s = self._now_s()
                return None
            return self._now_s() - self._busy_at_s

    def _apply(self, group_id: str, fields: dict[str, object]) -> None:
        match group_record(fields):
            case ShareGroupMemberMetadata(member_id=member_id):
                self._members.add((group_id, member_id))
            case ShareGroupMemberRemoved(member_id=member_id):
                self._members.discard((group_id, member_id))
