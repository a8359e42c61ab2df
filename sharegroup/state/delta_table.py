"""Access to the Delta library: create and open the table, read its highest leader epoch, translate errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError, TableNotFoundError

from sharegroup.config.table_location import unreadable_part
from sharegroup.errors import StateTableError, UnsupportedFormatVersionError
from sharegroup.state.commit_log import LOG_FOLDER, NO_SNAPSHOT_MS, SNAPSHOT_TRANSACTION, has_commit, version_of
from sharegroup.state.data_files import FILE_RETENTION_MS, STATISTICS_COLUMNS
from sharegroup.state.open_storage import REMEDY_FOR_FEATURES, explanation_of, library_options, storage_of
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA

NO_LEADER_EPOCH = 0
"""Highest leader epoch of a table that no processor has opened; the first processor gets 1."""

LOG_RETENTION_MS = 40_000
"""Age up to which commit files are kept: at least twice the maximum duration of a commit."""

_LISTINGS = 10
_GAP = "found gap"

WITHOUT_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""No checkpoint with a commit: if it failed, the commit would seem to have failed; and checkpoints are not synced."""

_LISTED_COLUMNS = 3
_WRITER_VERSION = 2
"""Highest protocol of a table that this package commits to: it is append-only, and has no other feature."""

_OWN_FEATURES = {"appendOnly", "invariants"}
"""Names of what version 2 is, in a protocol that lists features."""

_APPEND_ONLY = "delta.appendOnly"

_CONFIGURATION = {
    _APPEND_ONLY: "true",
    "delta.checkpointInterval": "100",
    # Opening the table lists the log folder, which costs 8 ms for every 1,000 files in it.
    "delta.logRetentionDuration": f"interval {LOG_RETENTION_MS // 1_000} seconds",
    "delta.deletedFileRetentionDuration": f"interval {FILE_RETENTION_MS // 1_000} seconds",
    "delta.dataSkippingStatsColumns": ",".join(STATISTICS_COLUMNS),
}


def open_table(path: str) -> DeltaTable:
    """Open the newest version of the state table.

    Raises:
        StateTableError: there is no table, or it cannot be read.
        UnsupportedFormatVersionError: the table does not have the columns of this release.
    """
    _check_name(path)
    with translated(path, "read"):
        try:
            table = _opened(path)
        except TableNotFoundError:
            raise StateTableError(
                f"There is no state table at {path}.", "Start the processor, which creates it, or correct the path."
            ) from None
    _check_columns(table, path)
    return table


def newest(table: DeltaTable | None, path: str) -> DeltaTable:
    """Return the newest version of a table: update an open one, which takes a fraction of the time, or open it.

    Raises:
        StateTableError: there is no table, or it cannot be read.
        UnsupportedFormatVersionError: the table does not have the columns of this release.
    """
    if table is not None:
        if _is_newest(path, table.version()):
            return table
        with translated(path, "read"), suppress(DeltaError):
            table.update_incremental()
            return table
    return open_table(path)


def _is_newest(path: str, version: int) -> bool:
    """Return True if a table has no commit after a version; an update would list its log."""
    with translated(path, "read"):
        # While the version's own file exists, no clean-up of the log has passed it.
        return has_commit(path, version) and not has_commit(path, version + 1)


def _opened(path: str) -> DeltaTable:
    # A listing of a folder may miss a file that is created meanwhile and contain a younger one: the log seems to have a
    # gap. Another listing does not.
    for _ in range(_LISTINGS - 1):
        try:
            return _delta_table(path)
        except DeltaError as error:
            if _GAP not in str(error):
                raise
    return _delta_table(path)


def _delta_table(path: str) -> DeltaTable:
    return DeltaTable(path, storage_options=library_options(path))


def table_exists(path: str) -> bool:
    """Return True if there is a Delta table.

    Raises:
        OSError: this cannot be found out.
    """
    # The library examines each file of the log: 13 ms for 8,000 of them.
    with suppress(FileNotFoundError):
        return any(version_of(name) is not None for name in storage_of(path).names(LOG_FOLDER))
    return False


def create_or_open_table(path: str) -> DeltaTable:
    """Open the newest version of the state table; create it if it is missing. Concurrent callers create one table.

    Raises:
        StateTableError: the table can neither be read nor created.
        UnsupportedFormatVersionError: the table does not have the columns of this release.
    """
    _check_name(path)
    with translated(path, "created"):
        if not table_exists(path):
            try:
                DeltaTable.create(
                    path,
                    STATE_TABLE_SCHEMA,
                    partition_by=[PARTITION_COLUMN],
                    configuration=dict(_CONFIGURATION),
                    storage_options=library_options(path),
                )
            except DeltaError:
                if not table_exists(path):
                    raise
    return open_table(path)


def data_files(table: DeltaTable) -> pa.Table:
    """Return the data files of this version with their statistics, in delta-rs's form."""
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()


def highest_leader_epoch(table: DeltaTable) -> int:
    """Return the highest leader epoch of all rows of this version, from the statistics of its files.

    The commit history is not needed, so the retention of the log cannot hide a fence.
    """
    # Imported here because it takes as long as all of Arrow, and programs that only describe groups do not need it.
    import pyarrow.compute as pc

    files = data_files(table)
    statistic = "max.leader_epoch"
    if statistic in files.column_names and not files[statistic].null_count:
        highest = pc.max(files[statistic]).as_py()
    else:
        highest = pc.max(pa.table(table.scan(columns=["leader_epoch"]))["leader_epoch"]).as_py()
    return NO_LEADER_EPOCH if highest is None else int(highest)


def last_snapshot_ms(table: DeltaTable) -> int | None:
    """Return the time of the last table snapshot of this version, epoch ms; None without one."""
    snapshot_ms = table.transaction_version(SNAPSHOT_TRANSACTION)
    return None if snapshot_ms in (None, NO_SNAPSHOT_MS) else snapshot_ms


def is_protected_from_deletion(table: DeltaTable) -> bool:
    """Return True if no program may delete rows of this version."""
    return table.metadata().configuration.get(_APPEND_ONLY) == "true"


def protect_from_deletion(table: DeltaTable) -> None:
    """Forbid the deletion of rows: a pruning that was killed may have left it allowed."""
    _set_append_only(table, "true")


def allow_deletion(table: DeltaTable) -> None:
    """Allow the deletion of rows, until `protect_from_deletion`."""
    _set_append_only(table, "false")


def _set_append_only(table: DeltaTable, value: str) -> None:
    if table.metadata().configuration.get(_APPEND_ONLY) != value:
        table.alter.set_table_properties({_APPEND_ONLY: value}, post_commithook_properties=WITHOUT_HOOKS)


@contextmanager
def translated(path: str, verb: str) -> Iterator[None]:
    """Translate errors of the libraries into `StateTableError`.

    Args:
        path: the table, for the message.
        verb: the failed action, for the message.
    """
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        reason, remedy = explanation_of(path, error)
        raise StateTableError(f"State table {path} cannot be {verb}: {reason}.", remedy) from error


def _check_name(path: str) -> None:
    if part := unreadable_part(path):
        raise StateTableError(
            f"The path {path!r} of the state table contains {part!r}, which the Delta library takes for "
            "something else.",
            "Choose a folder without backslashes, control characters, and percent signs before two hexadecimal digits.",
        )


def _check_columns(table: DeltaTable, path: str) -> None:
    columns = {field.name for field in table.schema().fields}
    names = sorted(columns.symmetric_difference(STATE_TABLE_SCHEMA.names))
    if names:
        # A table of something else differs in all of them.
        more = len(names) - _LISTED_COLUMNS
        unlike = ", ".join(names[:_LISTED_COLUMNS]) + (f" and {more} more" if more > 0 else "")
        raise UnsupportedFormatVersionError(
            f"The Delta table at {path} is not a state table of this release; it differs in columns {unlike}.",
            "Correct the path, or use the release that wrote the table.",
        )
    protocol = table.protocol()
    if protocol.min_writer_version > _WRITER_VERSION:
        features = ", ".join(
            sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _OWN_FEATURES)
        )
        raise UnsupportedFormatVersionError(
            f"State table {path} asks for writer version {protocol.min_writer_version} of the Delta protocol, above "
            f"{_WRITER_VERSION}{f', for its features {features}' if features else ''}.",
            REMEDY_FOR_FEATURES,
        )
