"""The lock file of the active processor, by which a standby on the same machine knows its end at once.

It is in the folder `_processors` of a state table on a local disk, else beside an embedded log. The operating system
releases it with the process, also after SIGKILL; a process that is only paused keeps it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.config.table_location import location_of
from sharegroup.errors import LogUnavailableError
from sharegroup.event_log import Event
from sharegroup.logs.member_life import EndedMember, MemberLock
from sharegroup.logs.member_locks import LocalMemberLock, LocalMemberLocks
from sharegroup.processor.part import Part

logger = logging.getLogger("sharegroup.processor")

_FOLDER = "_processors"
_WAIT_MS = 60_000


def lock_folder(config: ProcessorConfig) -> Path | None:
    """Return the folder of the lock files; None when neither table nor log is on this machine."""
    table = location_of(config.state_table_path).folder
    if table is not None:
        return table / _FOLDER
    if config.log_path is not None:
        return config.log_path.with_name(config.log_path.name + _FOLDER)
    return None


def hold_lock(config: ProcessorConfig, leader_epoch: int) -> MemberLock | None:
    """Hold the lock of a processor that has taken over, and remove those of earlier ones that have ended.

    Without a folder that can be written there is no lock, and standbys hear of the end by their probes.
    """
    folder = lock_folder(config)
    if folder is None:
        return None
    with suppress(LogUnavailableError, OSError):
        lock = LocalMemberLock(folder, config.request_topic_name, f"{config.request_topic_name}-{leader_epoch}")
        locks = LocalMemberLocks(folder)
        for epoch, ended in _ended(locks, config.request_topic_name):
            if epoch < leader_epoch:
                locks.forget(ended)
        locks.close()
        return lock
    return None


class ProcessorLocks:
    """The lock files of the processors of one request log, for a standby."""

    def __init__(self, config: ProcessorConfig) -> None:
        self._topic = config.request_topic_name
        folder = lock_folder(config)
        self._locks: LocalMemberLocks | None = None
        if folder is not None:
            with suppress(OSError):
                self._locks = LocalMemberLocks(folder)

    def ended_epochs(self) -> list[int]:
        """Return the leader epochs of the processors whose process has ended without leaving."""
        return [] if self._locks is None else [epoch for epoch, _ in _ended(self._locks, self._topic)]

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` whenever a process may have ended, in a thread, until the context ends; then release all."""
        locks = self._locks
        if locks is None:
            yield
            return

        def wait() -> None:
            while not part.is_stopping.is_set():
                locks.wait(_WAIT_MS)
                wake()

        part = Part("processor-locks", wait, _log_failure, locks.wake)
        part.start()
        try:
            yield
        finally:
            part.stop()
            locks.close()


def _log_failure(failure: BaseException) -> None:
    # The standby finds out by its probes.
    logger.warning(Event("processor_locks_not_watched", reason=str(failure)))


def _ended(locks: LocalMemberLocks, topic: str) -> list[tuple[int, EndedMember]]:
    """Return leader epoch and lock of the processors whose process has ended."""
    ended = [member for member in locks.ended() if member.group_id == topic]
    return [(int(member.member_id.rpartition("-")[2]), member) for member in ended]
