"""Opening of the storage of a state table, by its folder or address."""

from __future__ import annotations

import os
from functools import lru_cache

from sharegroup.config.table_location import TableLocation, environment_options, is_in_store, location_of
from sharegroup.state.local_storage import LocalStorage
from sharegroup.state.table_storage import TIMEOUT_DEFAULTS, TableStorage


def storage_of(path: str) -> TableStorage:
    """Return the storage of a table.

    Raises:
        ConfigurationError: the library for object stores is not installed, or it refuses an option.
    """
    if not is_in_store(path):
        return LocalStorage(path)
    return _store(location_of(path), tuple(sorted(storage_options(path).items())))


@lru_cache(maxsize=16)
def _store(location: TableLocation, options: tuple[tuple[str, str], ...]) -> TableStorage:
    # A store keeps its connections, so each table has one in a process. Local tables do not need the library.
    from sharegroup.state.object_storage import ObjectStorage

    return ObjectStorage(str(location), dict(options))


def storage_options(path: str) -> dict[str, str]:
    """Return the options of a table's store: those of its location, before those of the environment."""
    if not is_in_store(path):
        return {}
    return {**environment_options(path, os.environ), **location_of(path).options}


def library_options(path: str) -> dict[str, str] | None:
    """Return the options of a table's store for delta-rs; None on a local disk."""
    return {**TIMEOUT_DEFAULTS, **storage_options(path)} if is_in_store(path) else None
