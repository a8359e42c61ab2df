"""Operating system locks that members of an embedded log hold: they end with the member's process.

Each member has a file of its own in the folder `<log>.members`, which it keeps locked. When another process can take
the lock of a file, the process of its member has ended; processes that were forked from it do not keep the lock. The
kernel reports when a file is closed, without polling.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
from contextlib import suppress
from pathlib import Path

from sharegroup.errors import LogUnavailableError
from sharegroup.logs.file_watch import IN_CLOSE_WRITE, watch
from sharegroup.logs.member_life import EndedMember
from sharegroup.logs.own_descriptor import OwnDescriptor

_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NEW = ".new-"
_LONGEST_PAUSE_MS = 200.0
"""Interval of the checks where the kernel reports nothing."""


def members_folder(log_path: Path) -> Path:
    """Return the folder of the member files of a log."""
    return log_path.with_name(log_path.name + ".members")


class LocalMemberLock:
    """The lock of one member, held until `close` or the end of the process.

    Args:
        folder: folder of the members' files; `members_folder` of a log, another one for other processes.

    Raises:
        LogUnavailableError: the file cannot be created.
    """

    def __init__(self, folder: Path, group_id: str, member_id: str) -> None:
        name = member_id if _SAFE_NAME.fullmatch(member_id) else hashlib.sha256(member_id.encode()).hexdigest()
        self._path = folder / name
        self._closing = threading.Lock()
        new = folder / f"{_NEW}{name}"
        try:
            folder.mkdir(exist_ok=True)
            self._descriptor = OwnDescriptor(new, os.O_RDWR | os.O_CREAT)
            try:
                # The processor may be another user's, whatever this one's umask is.
                os.fchmod(self._descriptor.fileno(), 0o644)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
                content = json.dumps({"group_id": group_id, "member_id": member_id})
                os.write(self._descriptor.fileno(), content.encode())
                # Other processes take it for a member's file only now that it is locked.
                os.replace(new, self._path)
            except BaseException:
                self._descriptor.close()
                new.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise LogUnavailableError(
                f"The file {self._path} of member {member_id} cannot be made: {error.strerror}.",
                "Members need a log that they can write beside.",
            ) from error

    def close(self) -> None:
        """Release the lock: the member has left regularly. Any thread may call it, more than once.

        In a process that was forked it does nothing: the member is that of the other process.
        """
        if not self._descriptor.is_open:
            return
        with self._closing:
            if self._descriptor.is_open:
                with suppress(FileNotFoundError):
                    self._path.unlink()
                self._descriptor.close()


class LocalMemberLocks:
    """The locks of all members, for one thread that waits for ended members."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(exist_ok=True)
        self._watch = watch(self._folder, IN_CLOSE_WRITE)

    def ended(self) -> list[EndedMember]:
        """Return the members whose process has ended and that were not forgotten, in no order."""
        ended: list[EndedMember] = []
        for path in self._folder.iterdir():
            if path.name.startswith(_NEW):
                continue
            # A member that lives keeps its file locked. One that cannot be read is passed over: the locks of its member
            # end by their time.
            with suppress(OSError, ValueError, KeyError), OwnDescriptor(path, os.O_RDONLY) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                member = json.loads(os.read(descriptor.fileno(), 65_536))
                ended.append(EndedMember(member["group_id"], member["member_id"], path.name))
        return ended

    def forget(self, member: EndedMember) -> None:
        """Remove the files of an ended member."""
        (self._folder / member.key).unlink(missing_ok=True)

    def wait(self, timeout_ms: float) -> None:
        """Block until a member may have ended, `wake` is called, or the time is over."""
        self._watch.wait(timeout_ms if self._watch.reports else _LONGEST_PAUSE_MS)

    def wake(self) -> None:
        """End the current or the next wait; any thread may call it."""
        self._watch.wake()

    def close(self) -> None:
        """Release all resources; no wait may be under way."""
        self._watch.close()
