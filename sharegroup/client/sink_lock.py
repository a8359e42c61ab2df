"""The lock file of a sink on a local disk: one Spark application holds it alone, or other processes share it.

Java's FileLock and Python's `fcntl.lockf` are one kind of lock.
"""

from __future__ import annotations

from pathlib import Path


def lock_path(table: str) -> str:
    """Return the path of the lock file of a table: beside it, since a table may be dropped and created again."""
    folder = Path(table)
    return str(folder.parent / f".{folder.name}.sharegroup-lock")
