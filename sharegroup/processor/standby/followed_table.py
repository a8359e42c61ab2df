"""The state table of a standby: folded once, then followed commit by commit, so that a takeover folds only what is new.

Rows keep their commit ids wherever upkeep moves them, so the position is that of the last commit. A group's rows follow
each other in the order of commits, so that applying those of later commits to the fold gives the fold of all.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.errors import StateTableError
from sharegroup.processor.takeover.older_state import PresentState
from sharegroup.processor.takeover.takeover import DeltaStateTable
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import NO_COMMIT
from sharegroup.state.commit_rows import CommitRows
from sharegroup.state.delta_table import NO_LEADER_EPOCH
from sharegroup.state.fold import FoldedState, advance, fold, without_collections


class FollowedTable(DeltaStateTable):
    """The state table in Delta, with the state of its groups.

    Args:
        fold_count: states that are kept: `PresentState.fold_again` needs a second one at once if it is called.
    """

    def __init__(self, path: str, fold_count: int = 1) -> None:
        super().__init__(path)
        self._fold_count = fold_count
        self._rows: CommitRows | None = None
        self._folds: list[FoldedState] = []
        self._version = NO_COMMIT
        self._commit_id = NO_COMMIT
        self._leader_epoch = NO_LEADER_EPOCH

    @property
    def commit_id(self) -> int:
        """Return the last commit that was followed; -1 before the first."""
        return self._commit_id

    @property
    def followed_epoch(self) -> int:
        """Return the highest leader epoch of the version that was followed; 0 before the first."""
        return self._leader_epoch

    def follow(self) -> None:
        """Apply the commits since the last call; fold the whole table at the first one, and after a gap.

        Raises:
            StateTableError: the table cannot be read, or does not exist.
        """
        if self._rows is None:
            self._begin()
            return
        position = self._rows.position()
        if position.version == self._version:
            return
        self._leader_epoch = self.leader_epoch()
        if position.commit_id != self._commit_id:
            rows = list(self._rows.between(self._commit_id, position.commit_id))
            if position.commit_id < self._commit_id or not _is_complete(rows, self._commit_id, position.commit_id):
                # Rows were pruned while this process stood still, or another table was put in place.
                self._begin()
                return
            self._advance(rows)
        self._version, self._commit_id = position.version, position.commit_id

    def present_state(self) -> PresentState:
        """Return the state of all groups, and follow the table no more: the processor changes this state."""
        self.follow()
        folded, *others = self._folds
        self._rows, self._folds = None, []
        marker = self.last_marker()
        recovery_rows = self.recovery_rows
        return PresentState(folded, lambda: others[0] if others else fold(recovery_rows()), marker)

    def _begin(self) -> None:
        self._rows, self._folds, self._commit_id = None, [], NO_COMMIT
        rows = CommitRows(self.path)
        position = rows.position()
        recovery = self.recovery()
        with without_collections():
            self._folds = [fold(recovery.rows) for _ in range(self._fold_count)]
        self._leader_epoch = self.leader_epoch()
        self._commit_id = recovery.last_marker.commit_id if recovery.last_marker is not None else NO_COMMIT
        # A commit between the two polls is followed by its id.
        self._version, self._rows = position.version, rows

    def _advance(self, rows: Sequence[StateRow]) -> None:
        try:
            for folded in self._folds:
                for row in rows:
                    if row.group_id:
                        advance(folded, row)
        except StateTableError:
            # The state is only half of the next one: fold all rows at the next call.
            self._rows = None
            raise


def _is_complete(rows: Sequence[StateRow], after: int, until: int) -> bool:
    """Return True if the rows have the marker of each commit of a range."""
    markers = {row.commit_id for row in rows if row.record_type is RecordType.COMMIT_MARKER}
    return len(markers) == until - after
