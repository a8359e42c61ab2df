"""The Delta library at the edge: create, open, look at the highest leader epoch, translate its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError, TableNotFoundError

from sharegroup.errors import StateTableError, UnsupportedFormatVersionError
from sharegroup.state.commit_log import commits_after, sync_commits
from sharegroup.state.data_files import STATISTICS_COLUMNS
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA

NO_LEADER_EPOCH = 0
"""Highest leader epoch of a table that no processor has opened; the first processor takes 1."""

LOG_RETENTION_MS = 60_000
"""Age up to which commit files are kept: at least twice the time that a commit may take."""

WITHOUT_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""A checkpoint that fails after its commit is in would make the commit look failed, and none is synced."""

_WRITER_VERSION = 2
"""Highest protocol of a table that commits are written for here: it is append-only, and has no other feature."""

_APPEND_ONLY = "delta.appendOnly"

_CONFIGURATION = {
    _APPEND_ONLY: "true",
    "delta.checkpointInterval": "100",
    # Opening the table lists the log folder, which costs 8 ms for every 1,000 files in it.
    "delta.logRetentionDuration": f"interval {LOG_RETENTION_MS // 1_000} seconds",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.dataSkippingStatsColumns": ",".join(STATISTICS_COLUMNS),
}

_REMEDIES = {
    "No space left": "Free space on the disk, then start the processor again.",
    "Permission denied": "Give this user the right to read and write the folder.",
    "Operation not permitted": "Give this user the right to read and write the folder.",
    "Read-only file system": "Choose a folder on a disk that can be written.",
    "Not a directory": "Choose a folder; part of this path is a file.",
}


def open_table(path: str) -> DeltaTable:
    """The newest version of the state table.

    Raises:
        StateTableError: there is no table, or it cannot be read.
        UnsupportedFormatVersionError: it is a table, but not with the columns of this release.
    """
    with translated(path, "read"):
        try:
            table = DeltaTable(path)
        except TableNotFoundError:
            raise StateTableError(
                f"There is no state table at {path}.", "Start the processor, which creates it, or correct the path."
            ) from None
    _check_columns(table, path)
    return table


def create_or_open_table(path: str) -> DeltaTable:
    """The newest version of the state table, created if need be, by whichever of several callers is first.

    Raises:
        StateTableError: it can neither be read nor created.
        UnsupportedFormatVersionError: a table is there, but not with the columns of this release.
    """
    with translated(path, "created"):
        if not DeltaTable.is_deltatable(path):
            try:
                DeltaTable.create(
                    path, STATE_TABLE_SCHEMA, partition_by=[PARTITION_COLUMN], configuration=dict(_CONFIGURATION)
                )
            except DeltaError:
                if not DeltaTable.is_deltatable(path):
                    raise
    return open_table(path)


def highest_leader_epoch(table: DeltaTable) -> int:
    """The highest leader epoch of any row of this version, from the statistics of its files.

    It needs no commit history, so that the retention of the log cannot hide a fence.
    """
    # Imported here because it takes as long as all of Arrow, and programs that only look at groups do not need it.
    import pyarrow.compute as pc

    files = pa.table(table.get_add_actions(flatten=True))
    statistic = "max.leader_epoch"
    if statistic in files.column_names and not files[statistic].null_count:
        highest = pc.max(files[statistic]).as_py()
    else:
        highest = pc.max(pa.table(table.scan(columns=["leader_epoch"]))["leader_epoch"]).as_py()
    return NO_LEADER_EPOCH if highest is None else int(highest)


def protect_from_deletion(table: DeltaTable) -> None:
    """Let no program delete rows: a pruning that was killed may have left that open."""
    _set_append_only(table, "true")


def allow_deletion(table: DeltaTable) -> None:
    """Let rows be deleted, until `protect_from_deletion`."""
    _set_append_only(table, "false")


def _set_append_only(table: DeltaTable, value: str) -> None:
    if table.metadata().configuration.get(_APPEND_ONLY) != value:
        table.alter.set_table_properties({_APPEND_ONLY: value}, post_commithook_properties=WITHOUT_HOOKS)


@contextmanager
def synced(path: str) -> Iterator[None]:
    """Wait at the end until what delta-rs has committed meanwhile is on the disk.

    Args:
        path: the table's folder.
    """
    version = open_table(path).version()
    yield
    sync_commits(path, list(commits_after(path, version)))


@contextmanager
def translated(path: str, verb: str) -> Iterator[None]:
    """Turn errors of the libraries into `StateTableError`.

    Args:
        path: the table, for the message.
        verb: what could not be done to it, for the message.
    """
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        text = str(error)
        reason = text.splitlines()[0].rstrip(".")
        raise StateTableError(f"State table {path} cannot be {verb}: {reason}.", _remedy(text)) from error


def _check_columns(table: DeltaTable, path: str) -> None:
    found = {field.name for field in table.schema().fields}
    unlike = ", ".join(sorted(found.symmetric_difference(STATE_TABLE_SCHEMA.names)))
    if unlike:
        raise UnsupportedFormatVersionError(
            f"The Delta table at {path} is not a state table of this release; it differs in columns {unlike}.",
            "Correct the path, or use the release that wrote the table.",
        )
    writer_version = table.protocol().min_writer_version
    if writer_version > _WRITER_VERSION:
        raise UnsupportedFormatVersionError(
            f"State table {path} asks for writer version {writer_version} of the Delta protocol, above "
            f"{_WRITER_VERSION}.",
            "Another program has added a table feature to it: restore it from a copy.",
        )


def _remedy(text: str) -> str:
    for fragment, remedy in _REMEDIES.items():
        if fragment in text:
            return remedy
    return "Check that the folder is whole and its disk healthy; restore it from a copy if it is damaged."
