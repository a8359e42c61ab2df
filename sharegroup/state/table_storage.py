"""The port to what a state table is stored in: files of a folder, or objects of a bucket under a prefix.

All that this package writes itself goes through it; delta-rs has its own way to the same files. An adapter promises:

1. What `write`, or the function of `prepared`, has put survives a failure: it is durable when the call returns.
2. Of all that put one name at a time by `prepared`, one succeeds; no reader sees a part of a content.
3. A name that does not exist is FileNotFoundError; whatever else fails is OSError, with a text that names the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import pyarrow as pa

TIMEOUT_DEFAULTS: Mapping[str, str] = {
    "timeout": "10s",
    "connect_timeout": "3s",
    "max_retries": "3",
    "retry_timeout": "10s",
}
"""Bounds of one request, where no option sets them: below the time limit of a commit, so that it is tried again."""


class StoredFile(NamedTuple):
    """A file of a table.

    Attributes:
        name: its path within the table.
        modified_ms: time of its last write by the clock of its storage; epoch ms.
    """

    name: str
    size_bytes: int
    modified_ms: int


class TableStorage(Protocol):
    """The files of one state table. A name is a path within the table.

    Attributes:
        can_be_torn: True if a power failure may leave a part of a file that others wrote.
        charges_requests: True if each request is paid for: what is not urgent is asked for seldom.
    """

    can_be_torn: bool
    charges_requests: bool

    def prepared(self, content: bytes) -> AbstractContextManager[Callable[[str], bool]]:
        """Prepare a file without a name.

        Yields:
            A function that gives it a name, durably; False if there is a file of that name. After OSError, the file
            may nevertheless be there.
        """

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Write a new file, whose name nobody else uses."""

    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    def opened(self, name: str) -> pa.NativeFile:
        """Open a file to be read in parts."""

    def exists(self, name: str) -> bool:
        """Return True if there is a file of that name."""

    def size_bytes(self, name: str) -> int:
        """Return the size of a file."""

    def files(self, folder: str, after: str = "") -> Iterator[StoredFile]:
        """Yield the files in a folder of the table, at any depth.

        Args:
            folder: path within the table, without a slash at its end.
            after: only files with a greater name; a path within the table.
        """

    def names(self, folder: str, after: str = "") -> Iterator[str]:
        """Yield the names of the files that lie in a folder of the table itself; see `files`."""

    def delete(self, name: str) -> None:
        """Delete a file; one that does not exist is no error."""

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete many files, in any order; see `delete`."""

    def sync(self, names: Iterable[str]) -> None:
        """Wait until files and folders that others wrote are durable, those that still exist.

        Where each write is durable by itself, the names are not even read: a caller may find them one by one.
        """

    def sync_table_name(self) -> None:
        """Wait until the name of the table itself is durable."""

    def locked(self, name: str, patience_s: float) -> AbstractContextManager[bool]:
        """Hold a lock until the context ends, or this process; yield False if another process holds it all the time.

        A storage that cannot keep other processes out yields True: whatever is done under a lock must be safe without
        it.

        Args:
            name: the lock's file in the table's folder.
            patience_s: how long to wait for the lock.
        """

    def change_mark(self, folder: str) -> int | None:
        """Return a number that changes with the names in a folder; None if only their list shows a change."""

    def check(self) -> None:
        """Check that of two that put one name the second is refused.

        Raises:
            StateTableError: it is not.
        """

    def now_ms(self) -> int:
        """Return the time by the clock that `StoredFile.modified_ms` has; epoch ms."""
