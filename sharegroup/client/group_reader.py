"""Reads groups for administrators from the state table and the log, without load on the processor."""

from __future__ import annotations

from collections import Counter

from sharegroup.client.described_groups import GroupDescription, described_groups
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import Cause
from sharegroup.errors import GroupIdNotFoundError
from sharegroup.logs.port import Log
from sharegroup.state.fold import SHARE_PARTITION_TYPES, FoldedGroup, fold
from sharegroup.state.reader import StateTableReader


class GroupReader:
    """Describes groups from the state table, with or without a running processor; appends to no log.

    Every call raises StateTableError when there is no state table or it cannot be read.

    Args:
        broker: defaults and limits of all groups, as the processor has them.
    """

    def __init__(self, log: Log, state_table_path: str, broker: BrokerConfig) -> None:
        self._log = log
        self._table = StateTableReader(state_table_path)
        self._broker = broker

    def groups(self) -> list[GroupDescription]:
        """Return all groups, by id."""
        return described_groups(self._log, self._folded(None), self._broker)

    def group(self, group_id: str) -> GroupDescription:
        """Return one group.

        Raises:
            GroupIdNotFoundError: the state table does not have the group.
        """
        return described_groups(self._log, [self.folded(group_id)], self._broker)[0]

    def folded(self, group_id: str) -> FoldedGroup:
        """Return the folded state of one group.

        Raises:
            GroupIdNotFoundError: the state table does not have the group.
        """
        groups = [group for group in self._folded(group_id) if group.group_id == group_id]
        if not groups:
            raise GroupIdNotFoundError(
                f"Group {group_id} not found.",
                "A group begins when its first member joins or when it is configured: check the name.",
            )
        return groups[0]

    def accepted_counts(self, since_ms: int) -> Counter[str]:
        """Return group id → number of records that its members have accepted since a time, epoch ms."""
        counts: Counter[str] = Counter()
        for row in self._table.rows(record_types=SHARE_PARTITION_TYPES, since_ms=since_ms):
            counts[row.group_id] += sum(
                entry.transition.size for entry in row.transitions if entry.cause is Cause.ACCEPT
            )
        return counts

    def _folded(self, group_id: str | None) -> list[FoldedGroup]:
        groups = fold(self._table.recovery_rows(group_id)).groups
        return [groups[known] for known in sorted(groups)]
