"""A state table in a folder of a local disk: files that survive a power failure, content and name."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from sharegroup.state.table_storage import StoredFile

TEMPORARY_PREFIX = ".unfinished-"
"""Prefix of temporary names; Delta ignores them."""

_POLL_INTERVAL_S = 0.05

_REMEDIES = {
    "No space left": "Free space on the disk, then start the processor again.",
    "Permission denied": "Give this user the right to read and write the folder.",
    "Operation not permitted": "Give this user the right to read and write the folder.",
    "Read-only file system": "Choose a folder on a disk that can be written.",
    "Not a directory": "Choose a folder; part of this path is a file.",
}


class LocalStorage:
    """The files of a table in a folder; see `TableStorage`."""

    can_be_torn = True
    charges_requests = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def prepared(self, content: bytes) -> Iterator[Callable[[str], bool]]:
        """Write a file under a temporary name; giving it its name takes microseconds."""
        # Only the log has files that several processes may put.
        folder = self._folder / "_delta_log"
        temporary = folder / f"{TEMPORARY_PREFIX}{uuid4().hex}"

        def put(name: str) -> bool:
            try:
                # Unlike a rename, a link never replaces an existing file. delta-rs commits in the same way.
                os.link(temporary, self._folder / name)
            except FileExistsError:
                return False
            sync_folder((self._folder / name).parent)
            return True

        try:
            _create(temporary, content)
            yield put
        finally:
            temporary.unlink(missing_ok=True)

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Create a file, which is on the disk when the method returns, and its name, too."""
        file = self._folder / name
        if not file.parent.is_dir():
            file.parent.mkdir(exist_ok=True)
            sync_folder(self._folder)
        _create(file, content)
        sync_folder(file.parent)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self._folder / name).read_bytes()

    def opened(self, name: str) -> pa.NativeFile:
        """Open a file."""
        return pa.OSFile(str(self._folder / name))

    def exists(self, name: str) -> bool:
        """Return True if there is a file of that name."""
        return (self._folder / name).exists()

    def size_bytes(self, name: str) -> int:
        """Return the size of a file."""
        return (self._folder / name).stat().st_size

    def files(self, folder: str, after: str = "") -> Iterator[StoredFile]:
        """Yield the files in a folder; those that others delete meanwhile may be missing."""
        for file in (self._folder / folder).rglob("*"):
            name = file.relative_to(self._folder).as_posix()
            with suppress(FileNotFoundError):
                if name > after and not file.is_dir():
                    status = file.stat()
                    yield StoredFile(name, status.st_size, status.st_mtime_ns // 1_000_000)

    def names(self, folder: str, after: str = "") -> Iterator[str]:
        """Yield the names in a folder, without reading the attributes of each file."""
        names = (f"{folder}/{name}" for name in os.listdir(self._folder / folder))
        return (name for name in names if name > after)

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self._folder / name).unlink(missing_ok=True)

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete files, one by one."""
        for name in names:
            self.delete(name)

    def sync(self, names: Iterable[str]) -> None:
        """Sync files, then their folders and the table's."""
        folders = set[Path]()
        for name in names:
            file = self._folder / name
            # A file that a later commit has merged may be deleted.
            if file.exists():
                sync_file(file)
                folders.add(file.parent)
        for folder in folders:
            sync_folder(folder)

    def sync_table_name(self) -> None:
        """Sync the folder in which the table's folder is."""
        sync_folder(self._folder.absolute().parent)

    @contextmanager
    def locked(self, name: str, patience_s: float) -> Iterator[bool]:
        """Hold a lock of the operating system, which ends with the process."""
        give_up_at = time.monotonic() + patience_s
        with (self._folder / name).open("a") as lock:
            is_held = _is_taken(lock.fileno())
            while not is_held and time.monotonic() < give_up_at:
                time.sleep(_POLL_INTERVAL_S)
                is_held = _is_taken(lock.fileno())
            yield is_held

    def change_mark(self, folder: str) -> int:
        """Return the time of the folder's last change."""
        return (self._folder / folder).stat().st_mtime_ns

    def check(self) -> None:
        """Do nothing: a link never replaces a file."""

    def now_ms(self) -> int:
        """Return the time of this machine."""
        return time.time_ns() // 1_000_000


def disk_explanation(error: Exception) -> tuple[str, str]:
    """Return the reason of an error of a table on a local disk, in one line, and the remedy."""
    text = str(error)
    return text.splitlines()[0].rstrip("."), _remedy(text)


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk.

    Raises:
        OSError: the file is missing, or the disk failed.
    """
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk.

    Raises:
        OSError: the folder is missing, or the disk failed.
    """
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _remedy(text: str) -> str:
    for fragment, remedy in _REMEDIES.items():
        if fragment in text:
            return remedy
    return "Check that the folder is whole and its disk healthy; restore it from a copy if it is damaged."


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _create(path: Path, content: bytes | memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        _flush(descriptor)
    finally:
        os.close(descriptor)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def _flush(descriptor: int) -> None:
    """Write a file, or the names in a folder, to the disk."""
    if sys.platform == "darwin":
        # There fsync leaves the data in the disk's own cache. A file system that has no such call refuses it.
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)
