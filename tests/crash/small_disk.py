"""A file system that tests can fill: a tmpfs of some megabytes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_CHUNK = b"\0" * 65_536


class SmallDisk:
    """A mounted tmpfs.

    Args:
        folder: where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no byte of space."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (len(_CHUNK), 1):
                with suppress(OSError):
                    while file.write(_CHUNK[:size]):
                        pass

    def empty(self) -> None:
        """Give the space back."""
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, size_mb: int) -> Iterator[SmallDisk]:
    """Mount a tmpfs for a while; a test on a machine that does not allow it is skipped, and says so."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted ({mounted.stderr.strip()}); run as root, where mount is allowed")
    try:
        yield SmallDisk(folder)
    finally:
        # Lazy, since a process that is being killed may still have a file open.
        subprocess.run(["umount", "-l", str(folder)], check=True)
