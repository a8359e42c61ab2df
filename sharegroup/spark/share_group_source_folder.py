"""A folder of one member on the driver's machine: where acknowledgements wait, and a lock for who is the member.

A query that is started again goes on being the member of its checkpoint. Its predecessor may still be leaving the
group; two processes that are one member would open each other's share sessions again and again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import IO

_LOOK_S = 0.05


class MemberFolder:
    """`sharegroup-<member id>` among the temporary files; readable by this user only.

    Args:
        member_id: the member.
    """

    def __init__(self, member_id: str) -> None:
        self._path = Path(tempfile.gettempdir()) / f"sharegroup-{member_id}"
        self._file: IO[str] | None = None

    def acquire(self, timeout_s: float) -> bool:
        """Be the member on this machine; false when another process is it for longer than the time."""
        give_up_at_s = time.monotonic() + timeout_s
        while not self._try_acquire():
            if time.monotonic() >= give_up_at_s:
                return False
            Event().wait(_LOOK_S)
        return True

    def of_batch(self, number: int) -> Path:
        """The folder of a batch's acknowledgements; it is not made here."""
        return self._path / str(number)

    def release(self, keeps_acknowledgements: bool) -> None:
        """Let another process be the member; the folder stays for it if it has acknowledgements."""
        if self._file is None:
            return
        if not keeps_acknowledgements:
            shutil.rmtree(self._path, ignore_errors=True)
        self._file.close()
        self._file = None

    def _try_acquire(self) -> bool:
        self._path.mkdir(mode=0o700, exist_ok=True)
        path = self._path / "lock"
        try:
            file = path.open("a")
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have deleted it with its folder.
            is_held = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_held = False
        if is_held:
            self._file = file
        else:
            file.close()
        return is_held
