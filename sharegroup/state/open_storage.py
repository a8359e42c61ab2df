"""Opening of the storage of a state table, by its folder or address."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from sharegroup.config.table_location import TableLocation, environment_options, location_of
from sharegroup.state.local_storage import LocalStorage, disk_explanation
from sharegroup.state.store_errors import store_explanation
from sharegroup.state.table_storage import TIMEOUT_DEFAULTS, TableStorage

REMEDY_FOR_FEATURES = (
    "Another program has enabled them: remove them with Spark (ALTER TABLE … DROP FEATURE … TRUNCATE HISTORY), or "
    "restore a copy of the table from before; RESTORE keeps them."
)
"""Remedy of a table with features of the Delta protocol that this package does not know."""

_REMEDY_FOR_MISSING_FILE = (
    "A data file is gone. Try again first: a reading that began before another program's VACUUM … RETAIN 0 HOURS, or "
    "that takes longer than five minutes, needs files that the newest version does not. If it is still gone, restore "
    "the file from a copy; `sharegroup audit verify` names its rows, and audit as-of, lineage, stats and report answer "
    "for what is left."
)
_MISSING_FILE = ("not found", "No such file", "NoSuchKey", "NotFound")
_UNSUPPORTED_FEATURE = re.compile(r"(?i)unsupported.*feature|feature.*(?:un|not )supported|requires? .*feature")


def storage_of(path: str) -> TableStorage:
    """Return the storage of a table.

    Raises:
        ConfigurationError: the library for object stores is not installed, or it refuses an option.
    """
    location = location_of(path)
    if location.folder is not None:
        return LocalStorage(location.folder)
    return _store(location, tuple(sorted(storage_options(location).items())))


@lru_cache(maxsize=16)
def _store(location: TableLocation, options: tuple[tuple[str, str], ...]) -> TableStorage:
    # A store keeps its connections, so each table has one in a process. Local tables do not need the library.
    from sharegroup.state.object_storage import ObjectStorage

    return ObjectStorage(str(location), dict(options))


def storage_options(path: str) -> dict[str, str]:
    """Return the options of a table's store: those of its location, before those of the environment.

    Raises:
        ValueError: the table is on no object store.
    """
    return {**environment_options(path, os.environ), **location_of(path).options}


def library_options(path: str) -> dict[str, str] | None:
    """Return the options of a table's store for delta-rs; None on a local disk."""
    return {**TIMEOUT_DEFAULTS, **storage_options(path)} if location_of(path).folder is None else None


def explanation_of(path: str, error: Exception) -> tuple[str, str]:
    """Return the reason of an error of a table, in one line, and the remedy."""
    # No method of the storage, which may be what cannot be opened.
    reason, remedy = store_explanation(error) if location_of(path).folder is None else disk_explanation(error)
    return reason, _remedy_for_table(str(error)) or remedy


def _remedy_for_table(text: str) -> str:
    """Return the remedy of an error of the table itself; "" for one of the disk or the store."""
    if ".parquet" in text and any(sign in text for sign in _MISSING_FILE):
        return _REMEDY_FOR_MISSING_FILE
    return REMEDY_FOR_FEATURES if _UNSUPPORTED_FEATURE.search(text) else ""
