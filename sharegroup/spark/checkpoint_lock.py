"""One processor at a time writes a streaming checkpoint: two would spoil each other's batches."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import IO

from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import CheckpointInUseError
from sharegroup.event_log import Event
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import request

logger = logging.getLogger("sharegroup.spark.processor")

_NOBODY = "__takeover"
"""A group that no member is in."""
_TIMEOUT_S = 60
_LOOK_S = 0.1


class CheckpointLock:
    """Held by the processor that uses a checkpoint folder, for no longer than its process lives.

    Args:
        checkpoint: the folder; the lock is on a file beside it, which stays behind: its presence means nothing.
        metrics_port: where the processor shows its metrics; 0 is nowhere.
    """

    def __init__(self, checkpoint: Path, metrics_port: int = 0) -> None:
        self._path = checkpoint.with_name(f"{checkpoint.name}.lock")
        self._metrics_port = metrics_port
        self._file: IO[str] | None = None

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it; whether it is held now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        file.truncate(0)
        json.dump({"process": os.getpid(), "metrics_port": self._metrics_port}, file)
        file.flush()
        self._file = file
        return True

    def is_of_metrics_port(self, port: int) -> bool:
        """Whether a processor that shows its metrics at this port has the lock now."""
        if not self._path.exists():
            return False
        with self._path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _holder(file.read()).get("metrics_port") == port
        return False

    def take_over(self, log: Log, config: ProcessorConfig, stop: threading.Event) -> None:
        """Take the lock, from a processor that was fenced before if need be: wait until that one has ended.

        Args:
            log: the request log.
            config: names and partition counts of the topics.
            stop: ends the wait.

        Raises:
            CheckpointInUseError: the other processor does not end, or has not until `stop` was set.
        """
        if self.try_acquire():
            return
        holder = _holder(self._path.read_text()).get("process", "unknown")
        logger.info(Event("checkpoint_in_use", lock=self._path, process=holder))
        # It learns that it is fenced from its next commit, so there must be something to commit.
        tick = NewRecord(_NOBODY.encode(), request(ApiKey.TICK, _NOBODY, Tick()).encoded())
        log.append(config.request_topic_name, partition_for(_NOBODY, config.request_topic_partitions), [tick])
        give_up_at_s = time.monotonic() + _TIMEOUT_S
        while not self.try_acquire():
            if stop.wait(_LOOK_S) or time.monotonic() > give_up_at_s:
                raise CheckpointInUseError(
                    f"The checkpoint of {self._path} is in use by process {holder}, which was fenced and has not "
                    "ended.",
                    "Kill it, or give this processor another checkpoint.path.",
                )

    def release(self) -> None:
        """Give the lock back, if it is held."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _holder(text: str) -> dict[str, int]:
    """What the holder of a lock wrote; nothing while it is still writing."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
