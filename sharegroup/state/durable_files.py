"""Files that outlive a power failure: what a name points to, and the name itself, are on the disk.

An object store has no folders and promises durability with its answer to PUT; these functions are for local disks.
"""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk.

    Raises:
        OSError: the file is missing, or the disk refuses.
    """
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk.

    Raises:
        OSError: the folder is missing, or the disk refuses.
    """
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def put_if_absent(path: Path, content: bytes) -> bool:
    """Create a file with this content, on the disk before it has its name; the folder is not synced.

    Nobody ever sees the file with a part of its content, not even after a power failure.

    Returns:
        False if a file of that name is there already; nothing was changed.

    Raises:
        OSError: the file cannot be written. It may nevertheless be there.
    """
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{uuid4().hex}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            # Unlike a rename, a link never replaces what is there. delta-rs commits in the same way.
            os.link(temporary, path)
        except FileExistsError:
            return False
        return True
    finally:
        temporary.unlink(missing_ok=True)


TEMPORARY_PREFIX = ".unfinished-"
"""Names of files that `put_if_absent` has not finished; Delta takes no notice of them."""


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
