"""A folder of one member on the driver's machine: where acknowledgements wait, and a lock for who is the member.

A query that is started again goes on being the member of its checkpoint. Its predecessor may still be leaving the
group; two processes that are one member would open each other's share sessions again and again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import IO

from sharegroup.errors import ConfigurationError

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
        """Become the member on this machine; return False if another process is it for longer than the timeout.

        Raises:
            ConfigurationError: the folder is not only this user's.
        """
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
        with suppress(FileExistsError):
            self._path.mkdir(mode=0o700)
        path = self._path / "lock"
        try:
            _check_owned(self._path)
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


def _check_owned(path: Path) -> None:
    """Refuse a folder that another user made or may change: everybody may write among the temporary files."""
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        problem = "is no folder"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"has mode {mode:o}: other users may write to it"
    else:
        return
    raise ConfigurationError(
        f"The member's folder {path} {problem}.",
        "Delete it, or set TMPDIR to a folder that only this user may write to.",
    )
