"""One commit of rows to the state table, which succeeds as a whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from sharegroup.protocol.rows import StateRow
from sharegroup.state.delta_table import translated
from sharegroup.state.reader import SNAPSHOT_TRANSACTION
from sharegroup.state.schema import rows_to_table, utc_date


def is_committed(
    path: str,
    table: DeltaTable,
    rows: Sequence[StateRow],
    leader_epoch: int,
    snapshot_ms: int | None = None,
) -> bool:
    """Commit at the version after the table handle's; False when another process has taken that version.

    Args:
        path: the table, for messages.
        table: the handle.
        rows: their date and leader epoch are filled in here.
        leader_epoch: the epoch to write under.
        snapshot_ms: the time of the table snapshot that the rows are; None when they are none.

    Raises:
        StateTableError: the table cannot be written.
    """
    stamped = [row.model_copy(update={"date": utc_date(row.time_ms), "leader_epoch": leader_epoch}) for row in rows]
    # With retries, the library would move the commit of a stale processor past the fence of its successor, and that
    # of a stale table snapshot past a younger one.
    properties = CommitProperties(
        max_commit_retries=0,
        custom_metadata={"leaderEpoch": leader_epoch},
        app_transactions=None if snapshot_ms is None else [Transaction(SNAPSHOT_TRANSACTION, snapshot_ms)],
    )
    with translated(path, "written"):
        try:
            write_deltalake(table, rows_to_table(stamped), mode="append", commit_properties=properties)
        except CommitFailedError:
            return False
    return True
