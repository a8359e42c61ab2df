"""Commits of the Delta log that no part of this package made: nobody else may add or rewrite rows."""

from __future__ import annotations

from sharegroup.state.commit_log import COMMIT_TRANSACTION, SNAPSHOT_TRANSACTION, LogCommit

_MERGE = "OPTIMIZE"


def foreign_change(commit: LogCommit) -> str:
    """Return what a foreign commit does to the rows; "" for one of this package, and for one that changes no rows."""
    if not commit.added and not commit.removed:
        return ""
    operation = commit.operation or "a commit without a name"
    files = f"{operation} adds {len(commit.added)} and removes {len(commit.removed)} data files"
    if not commit.is_own:
        return f"{files}, and neither a processor nor its upkeep made it"
    if commit.operation == _MERGE and commit.changes_rows:
        return f"{files}, and changes rows"
    if commit.removed and not commit.transactions.keys().isdisjoint({COMMIT_TRANSACTION, SNAPSHOT_TRANSACTION}):
        return f"{files}, although it appends"
    return ""
