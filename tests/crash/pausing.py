"""SIGSTOP at a moment in which a process holds nothing that others wait for; and time that passes."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

from sharegroup.logs.write_queue import WriteQueue, WriteQueueTimeoutError
from tests.crash.process_group import ProcessGroup
from tests.kafka.site import KafkaSite
from tests.support.eventually import eventually
from tests.support.site import Site


def pause(site: Site, process: ProcessGroup) -> None:
    """SIGSTOP a process, with an embedded log while it has neither its turn to write it nor SQLite's lock."""
    if isinstance(site, KafkaSite):
        process.pause()
        return
    path = site.log_path
    queue = WriteQueue(path.with_name(f"{path.name}-lock"), timeout_ms=500)

    def is_paused() -> bool:
        process.pause()
        try:
            with queue.turn(), closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as log:
                log.execute("BEGIN IMMEDIATE")
                log.execute("ROLLBACK")
        except (WriteQueueTimeoutError, sqlite3.OperationalError):
            process.resume()
            return False
        return True

    eventually(is_paused, "the process is paused")
    queue.close()


def let_pass(seconds: float) -> None:
    """Let time pass: that is what is tested."""
    threading.Event().wait(seconds)
