"""Repair of the newest commits and checkpoints after a power failure; the first step of a takeover.

An acknowledged commit is whole, and so is every commit before it (see `commit_log`). So a torn commit, and all commits
after it, were never acknowledged: they are moved aside, under names that Delta ignores. A torn checkpoint only repeats
commit files that still exist: it is moved aside, too.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sharegroup.errors import StateTableError
from sharegroup.state.commit_log import (
    COMMIT_TRANSACTION,
    LogCommit,
    commit_file,
    log_folder,
    read_commit,
    sync_commits,
    version_of,
)
from sharegroup.state.delta_table import LOG_RETENTION_MS
from sharegroup.state.local_storage import TEMPORARY_PREFIX, sync_folder
from sharegroup.state.open_storage import storage_of

TORN_SUFFIX = ".torn"
"""Suffix of the names of files that were moved aside."""

_CHECKPOINT_HINT = "_last_checkpoint"
_LOCK_FILE = "_repair.lock"

logger = logging.getLogger("sharegroup.state")


def repair_tip(path: str) -> int:
    """Move torn commits and checkpoints aside, then wait until all newer commits are on the disk.

    Args:
        path: the table's folder; nothing happens when it is not there, or its files are always whole.

    Returns:
        The newest version whose commit is whole and on the disk; -1 when there is none.

    Raises:
        StateTableError: a commit before a processor's commit is damaged: no power failure causes that.
        OSError: the disk failed.
    """
    if not storage_of(path).can_be_torn or not log_folder(path).is_dir():
        return -1
    with _repairing(path):
        names = sorted(os.listdir(log_folder(path)))
        _delete_abandoned(path, names)
        checkpoint = _newest_whole_checkpoint(path, names)
        # Only the names that are sorted behind the checkpoint's: the log has thousands of older commits.
        younger = names[bisect_left(names, f"{checkpoint + 1:020}") :]
        commits_of = (version_of(name) for name in younger if name.endswith(".json"))
        present = [version for version in commits_of if version is not None]
        commits, torn = _examined_commits(path, present)
        for version, reason in reversed(torn):
            _move_aside(commit_file(path, version), reason)
        sync_commits(path, commits)
        return (present[: len(present) - len(torn)] or [checkpoint])[-1]


def _delete_abandoned(path: str, names: Sequence[str]) -> None:
    """Delete the commits that a killed process had prepared; another process may be about to make a younger one."""
    oldest_s = time.time() - LOG_RETENTION_MS / 1_000
    for unfinished in (log_folder(path) / name for name in names if name.startswith(TEMPORARY_PREFIX)):
        with suppress(FileNotFoundError):
            if unfinished.stat().st_mtime < oldest_s:
                unfinished.unlink()


def _newest_whole_checkpoint(path: str, names: Sequence[str]) -> int:
    """Return the version of the newest whole checkpoint, or -1; move torn ones after it and a bad hint aside."""
    newest = -1
    for name in reversed(names):
        version = version_of(name) if name.endswith(".parquet") else None
        if version is None:
            continue
        try:
            reason = _parquet_damage(log_folder(path) / name)
        except FileNotFoundError:
            # A living processor's upkeep has deleted it for a newer one.
            continue
        if not reason:
            newest = version
            break
        _move_aside(log_folder(path) / name, reason)
    hint = log_folder(path) / _CHECKPOINT_HINT
    if hint.exists():
        try:
            version = int(json.loads(hint.read_bytes())["version"])
            reason = "" if version <= newest else f"it names checkpoint {version}, which is missing"
        except (ValueError, KeyError, TypeError) as error:
            reason = f"it cannot be read: {error}"
        if reason:
            _move_aside(hint, reason)
    return newest


def _examined_commits(path: str, present: Sequence[int]) -> tuple[list[LogCommit], list[tuple[int, str]]]:
    """Return the whole commits at the end of the log, and version and damage of the torn ones with all that follow.

    Only commits after the last whole commit of a processor are examined: before that commit was made, all earlier ones
    were on the disk. Examining a commit takes a millisecond.

    Args:
        present: the versions after the last whole checkpoint.
    """
    earlier = list(present)
    examined: list[tuple[int, LogCommit | None, str]] = []
    removed: set[str] = set()
    while earlier:
        version = earlier.pop()
        commit, reason = _examined(path, version, removed)
        examined.append((version, commit, reason))
        if commit is not None:
            removed.update(commit.removed)
            if COMMIT_TRANSACTION in commit.transactions:
                break
    for version in earlier:
        if _is_cut_off(commit_file(path, version)):
            raise StateTableError(
                f"Commit {version} of state table {path} is damaged: it is cut off. Commit {examined[-1][0]} of a "
                "processor follows it, so it was whole once.",
                "Check the disk, and restore the table from a copy.",
            )
    whole: list[LogCommit] = []
    torn: list[tuple[int, str]] = []
    for version, commit, reason in reversed(examined):
        if commit is None or torn:
            torn.append((version, reason or f"it follows commit {torn[0][0]}, which is torn"))
        else:
            whole.append(commit)
    return whole, torn


def _is_cut_off(file: Path) -> bool:
    """Return True if the end of a commit file is missing; a clean-up of the log may have deleted it meanwhile."""
    with suppress(FileNotFoundError):
        return not file.read_bytes().rstrip().endswith(b"}")
    return False


def _examined(path: str, version: int, removed: Set[str]) -> tuple[LogCommit | None, str]:
    """Return a commit, or None and its damage.

    Args:
        removed: data files that whole later commits have replaced; they may be deleted.
    """
    try:
        commit = read_commit(path, version)
    except StateTableError as error:
        return None, str(error)
    for added in commit.added:
        reason = "" if added.path in removed else _data_damage(path, added.path, added.size_bytes)
        if reason:
            return None, f"its data file {added.path} {reason}"
    return commit, ""


def _data_damage(path: str, name: str, size_bytes: int) -> str:
    file = Path(path, name)
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return "is missing"
    if size != size_bytes:
        return f"has {size} bytes instead of {size_bytes}"
    return _parquet_damage(file)


def _parquet_damage(file: Path) -> str:
    """Return the damage of a file, "" for none.

    Raises:
        OSError: the file cannot be read now, which says nothing about it.
    """
    try:
        pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return f"cannot be read: {str(error).splitlines()[0]}"
    return ""


def _move_aside(file: Path, reason: str) -> None:
    aside = file.with_name(file.name + TORN_SUFFIX)
    number = 1
    while aside.exists():
        number += 1
        aside = file.with_name(f"{file.name}{TORN_SUFFIX}-{number}")
    file.rename(aside)
    sync_folder(file.parent)
    logger.warning("%s was never acknowledged and is kept as %s: %s.", file, aside.name, reason)


@contextmanager
def _repairing(path: str) -> Iterator[None]:
    """Let only one process repair: another one may have replaced a torn commit by a whole one since."""
    with Path(path, _LOCK_FILE).open("a") as lock:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(lock.fileno(), fcntl.LOCK_UN)
