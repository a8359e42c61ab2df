"""A standby in a process of its own, without a JVM, for tests that kill and pause it and the active processor.

Run as `python -m tests.crash.standby_process FOLDER SECONDS_OF_A_FOLD`. SIGTERM lets it leave.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from sharegroup.errors import ShareGroupError
from sharegroup.processor.processor import Processor
from sharegroup.processor.standby.followed_table import FollowedTable
from sharegroup.processor.standby.host import serve_in_turn
from sharegroup.processor.takeover.older_state import PresentState
from tests.crash.process_group import ProcessGroup
from tests.support.site import Site

_NUMBERS = itertools.count(1)


class StandbyProcess(ProcessGroup):
    """The process of a standby.

    Args:
        folder: the site's folder.
        fold_s: how long its fold takes after a fence, at least.
    """

    def __init__(self, folder: Path, fold_s: float = 0.0) -> None:
        path = folder / f"standby-{os.getpid()}-{next(_NUMBERS)}.log"
        super().__init__("tests.crash.standby_process", [str(folder), str(fold_s)], path)

    def count(self, event: str) -> int:
        """Return how often it has logged an event."""
        return self.output.count(f"event={event} ") + self.output.count(f"event={event}\n")

    @property
    def is_standing_by(self) -> bool:
        """Return True if it stands by for the processor that took over last, as far as it knows."""
        return self.count("standing_by") > self.count("standby_takes_over")

    def leave(self) -> None:
        """SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)


def main(folder: Path, fold_s: float) -> int:
    """Stand by and work until SIGTERM, or until a failure; then say why, and exit with 1."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stop = threading.Event()
    running: list[Processor] = []

    def request_stop(*_: object) -> None:
        stop.set()
        for processor in running:
            processor.wake()

    def serve(processor: Processor) -> None:
        try:
            processor.start()
            running.append(processor)
            processor.run(stop.is_set)
        finally:
            running.clear()
            processor.stop()

    signal.signal(signal.SIGTERM, request_stop)
    _slow_down_the_fold(fold_s)
    try:
        settings = Site(folder).settings
        serve_in_turn(settings, lambda table: Processor(settings, table=table), serve, stop)
    except ShareGroupError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    return 0


def _slow_down_the_fold(fold_s: float) -> None:
    whole = FollowedTable.present_state

    def present_state(self: FollowedTable) -> PresentState:
        time.sleep(fold_s)
        return whole(self)

    FollowedTable.present_state = present_state  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
