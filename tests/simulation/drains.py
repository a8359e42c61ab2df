"""When groups drain for sure, by the messages of the request log alone, and which records they may acquire then.

A group drains at a leader from the message on that tells the leader so, up to the next request that may change that. A
message of a processor that has a successor in the log counts for nothing; the successor may begin with the outcome of a
later request than the message.
"""

from __future__ import annotations

from collections import defaultdict

from sharegroup.logs.port import LogRecord
from sharegroup.protocol.messages import RequestEnvelope

DRAIN = "share.drain.enable"


class Drains:
    """Follows the request log of all groups."""

    def __init__(self) -> None:
        self._changes: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        """Group → (offset, whether it drains for sure from there on), ascending."""
        self._requests: dict[str, tuple[int, int]] = {}
        """Group → request partition, and how many requests may have changed whether it drains."""
        self._highest_epochs: dict[int, int] = {}
        """Request partition → the highest leader epoch that is announced there."""

    def announced(self, record: LogRecord, leader_epoch: int) -> None:
        """Note a processor's announcement."""
        partition = record.partition
        self._highest_epochs[partition] = max(leader_epoch, self._highest_epochs.get(partition, -1))
        for group_id, (of_partition, count) in self._requests.items():
            if of_partition == partition and count > 1:
                self._changes[group_id].append((record.offset, False))

    def requested(self, group_id: str, partition: int, offset: int) -> None:
        """Note a request that may change whether a group drains."""
        self._requests[group_id] = (partition, self._requests.get(group_id, (partition, 0))[1] + 1)
        self._changes[group_id].append((offset, False))

    def configured(self, envelope: RequestEnvelope, record: LogRecord) -> None:
        """Note the configuration that a coordinator sends to its leader."""
        if envelope.leader_epoch >= self._highest_epochs.get(record.partition, -1):
            is_draining = envelope.body.get("overrides", {}).get(DRAIN) == "true"
            self._changes[envelope.group_id].append((record.offset, is_draining))

    def is_draining(self, group_id: str, first_offset: int, end_offset: int) -> bool:
        """Return True if a group drains for sure in all cuts that end after an offset, up to another one."""
        before = [is_draining for offset, is_draining in self._changes[group_id] if offset < first_offset]
        within = [is_draining for offset, is_draining in self._changes[group_id] if first_offset <= offset < end_offset]
        return all([*before[-1:], *within]) if before else False
