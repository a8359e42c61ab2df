"""A processor in a process of its own, for tests that kill, pause and starve it.

Run as `python -m tests.crash.processor_process FOLDER CHECKPOINT NAME`. It notes the commit points that it passes in
`FOLDER/NAME.points`. A file `FOLDER/kill-at` with the name of a commit point lets the next batch that comes to it end
in SIGKILL of the whole process group.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
from pathlib import Path

from sharegroup.spark.committer import CommitPoint
from sharegroup.spark.processor import Processor

from sharegroup.errors import ShareGroupError
from sharegroup.spark.session import build_session
from tests.crash import clock
from tests.crash.process_group import ProcessGroup
from tests.support.fast_start import JAVA_OPTIONS
from tests.support.site import Site

_NUMBERS = itertools.count(1)

FAST_START = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": JAVA_OPTIONS}


class ProcessorProcess(ProcessGroup):
    """A processor's process, with its JVM and its Python workers.

    Args:
        folder: the site's folder.
        checkpoint: name of the checkpoint folder.
    """

    def __init__(self, folder: Path, checkpoint: str) -> None:
        name = f"processor-{next(_NUMBERS)}"
        self._points_path = folder / f"{name}.points"
        super().__init__("tests.crash.processor_process", [str(folder), checkpoint, name], folder / f"{name}.log")

    def points_passed(self) -> list[str]:
        """The commit points that its batches have come to."""
        return self._points_path.read_text().splitlines()


def arm(folder: Path, point: CommitPoint) -> None:
    """Let the next batch that comes to this point end in SIGKILL."""
    (folder / "kill-at").write_text(point)


def main(folder: Path, checkpoint: str, name: str) -> int:
    """Run until killed, or until the processor fails; then say why, and exit with 1."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    armed = folder / "kill-at"
    points = (folder / f"{name}.points").open("a", buffering=1)

    def reached(point: CommitPoint) -> None:
        points.write(f"{point}\n")
        if armed.exists() and armed.read_text() == point:
            armed.unlink()
            os.killpg(os.getpgrp(), signal.SIGKILL)

    clock.follow(folder)
    logging.info("starting")
    spark = build_session("sharegroup-crash", FAST_START)
    logging.info("the session is there")
    spark.sparkContext.setLogLevel("ERROR")
    processor = Processor(spark, Site(None, folder, checkpoint=checkpoint).settings, reached)
    try:
        processor.start()
        clock.follow_in_query(spark)
        processor.await_termination()
    except ShareGroupError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
