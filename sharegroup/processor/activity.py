"""How long a processor has been idle: no members that may send requests, no messages to apply."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from sharegroup.processor.commit import Commit
from sharegroup.protocol.group_records import ShareGroupMemberMetadata, ShareGroupMemberRemoved, group_record
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import FoldedState


class GroupActivity:
    """Follows the members of all groups and the applied part of the request log.

    Args:
        folded: all groups at the start; only read, and only here.
        end_offsets: request partition → offset from which messages are applied.
        monotonic_s: a clock for durations, in seconds.
    """

    def __init__(
        self,
        folded: FoldedState,
        end_offsets: Mapping[int, int],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now_s = monotonic_s
        self._busy_at_s = monotonic_s()
        self._lock = threading.Lock()
        self._members = {
            (group.group_id, member_id) for group in folded.groups.values() for member_id in group.metadata.members
        }
        self._ends = dict(end_offsets)

    def published(self, commit: Commit) -> None:
        """Update from a published commit."""
        with self._lock:
            self._busy_at_s = self._now_s()
            for partition, end_offset in commit.end_offsets.items():
                self._ends[partition] = max(self._ends.get(partition, 0), end_offset)
            for row in commit.rows():
                if row.record_type is RecordType.GROUP_METADATA:
                    for fields in row.payload.get("records", []):
                        self._apply(row.group_id, fields)

    def idle_s(self, end_offsets: Mapping[int, int], is_writing: bool = False) -> float | None:
        """Return for how long nothing has been left to do; None while a group has a member, or something is left.

        Args:
            end_offsets: partition of the request log → its end offset.
            is_writing: dead-letter records wait to be written.
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
