"""Reads groups for administrators: from the state table and the log, so that looking costs the processor nothing."""

from __future__ import annotations

import time
from collections import Counter

from sharegroup.client.group_description import GroupDescription, described
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import Cause
from sharegroup.errors import GroupIdNotFoundError
from sharegroup.logs.end_offsets import end_offsets
from sharegroup.logs.port import Log
from sharegroup.state.fold import SHARE_PARTITION_TYPES, FoldedGroup, fold
from sharegroup.state.reader import StateTableReader


class GroupReader:
    """Describes groups as they stand in the state table, with or without a running processor; appends to no log.

    Every call raises StateTableError when there is no state table or it cannot be read.

    Args:
        log: where the records are, for the ends of the logs.
        state_table_path: the state table.
        broker: defaults and limits of all groups, as the processor has them.
    """

    def __init__(self, log: Log, state_table_path: str, broker: BrokerConfig) -> None:
        self._log = log
        self._table = StateTableReader(state_table_path)
        self._broker = broker

    def groups(self) -> list[GroupDescription]:
        """All groups, by id."""
        return self._described(self._folded(None))

    def group(self, group_id: str) -> GroupDescription:
        """One group.

        Raises:
            GroupIdNotFoundError: the state table knows no such group.
        """
        found = [group for group in self._folded(group_id) if group.group_id == group_id]
        if not found:
            raise GroupIdNotFoundError(
                f"Group {group_id} not found.",
                "A group begins when its first member joins or when it is configured: check the name.",
            )
        return self._described(found)[0]

    def accepted_counts(self, since_ms: int) -> Counter[str]:
        """Group id → records that its members accepted from a time on; epoch ms."""
        counts: Counter[str] = Counter()
        for row in self._table.rows(record_types=SHARE_PARTITION_TYPES, since_ms=since_ms):
            counts[row.group_id] += sum(
                entry.transition.size for entry in row.transitions if entry.cause is Cause.ACCEPT
            )
        return counts

    def _folded(self, group_id: str | None) -> list[FoldedGroup]:
        groups = fold(self._table.recovery_rows(group_id)).groups
        return [groups[known] for known in sorted(groups)]

    def _described(self, groups: list[FoldedGroup]) -> list[GroupDescription]:
        topics = {topic.topic for group in groups for topic in group.metadata.topics.values()}
        ends = end_offsets(self._log, topics)
        now_ms = time.time_ns() // 1_000_000
        return [described(group, ends, self._broker, now_ms) for group in groups]
