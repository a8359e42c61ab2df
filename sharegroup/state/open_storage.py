"""Opening of the storage of a state table, by its folder or address."""

from __future__ import annotations

import os
from functools import lru_cache

from sharegroup.config.table_location import TableLocation, environment_options, location_of
from sharegroup.state.local_storage import LocalStorage, disk_explanation
from sharegroup.state.store_errors import store_explanation
from sharegroup.state.table_storage import TIMEOUT_DEFAULTS, TableStorage


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
    return store_explanation(error) if location_of(path).folder is None else disk_explanation(error)
