"""A processor in a process of its own, without a JVM, for tests that kill, pause and starve it.

Run as `python -m tests.crash.processor_process SPECIFICATION`, a JSON file. It appends the points that it passes to
its `.points` file. A file `kill-at` in the site's folder with the name of a point lets the next processor that comes to
it end in SIGKILL of its whole process group.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.mailbox import GroupActors
from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import ShareGroupError
from sharegroup.processor.commit import CommitPoint
from sharegroup.processor.output import LogPublisher
from sharegroup.processor.processor import Processor
from sharegroup.protocol.internal_messages import ProcessorStarted
from tests.crash import clock
from tests.crash.process_group import ProcessGroup
from tests.kafka.site import KafkaSite
from tests.support.site import Site

_NUMBERS = itertools.count(1)

LOOP_POINTS = (CommitPoint.APPLIED, CommitPoint.COMMITTED, CommitPoint.PUBLISHED)
FENCED, ANNOUNCED, OUTBOX_PUBLISHED = "fenced", "announced", "outbox-published"
TAKEOVER_POINTS = (FENCED, ANNOUNCED, OUTBOX_PUBLISHED)
EXIT_CODE_OF_THE_BUG = 77


@dataclass(frozen=True)
class ProcessorSpecification:
    """How a processor runs.

    Attributes:
        folder: the site's folder.
        broker: fields of the broker's configuration that differ from the site's.
        fatal_client_id: a bug: applying a message of this client ends the process.
        clock_shift_ms: its wall clock is off by so much, in addition to the site's shift.
        bootstrap_servers: of the Kafka cluster with the site's log; none for the embedded log.
        stem: of a site on Kafka.
    """

    folder: str
    broker: dict[str, object] = field(default_factory=dict)
    fatal_client_id: str = ""
    clock_shift_ms: int = 0
    bootstrap_servers: str = ""
    stem: str = ""

    @property
    def site(self) -> Site:
        """Open the site."""
        folder = Path(self.folder)
        if not self.bootstrap_servers:
            return Site(folder, broker=self.broker)
        kafka = KafkaConfig(bootstrap_servers=self.bootstrap_servers)
        return KafkaSite(folder, broker=self.broker, kafka=kafka, stem=self.stem)


class ProcessorProcess(ProcessGroup):
    """The process of a processor, with its upkeep."""

    def __init__(self, specification: ProcessorSpecification) -> None:
        stem = Path(specification.folder, f"processor-{os.getpid()}-{next(_NUMBERS)}")
        path = stem.with_suffix(".json")
        path.write_text(json.dumps(asdict(specification)))
        self._points_path = stem.with_suffix(".points")
        super().__init__("tests.crash.processor_process", [str(path)], stem.with_suffix(".log"))

    def points_passed(self) -> list[str]:
        """The points that its takeover and its commits have passed."""
        return self._points_path.read_text().splitlines() if self._points_path.exists() else []

    def peak_memory_mb(self) -> float:
        """The most memory that the process has had at once."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024


def arm(folder: Path, point: str) -> None:
    """Let the next processor that comes to this point end in SIGKILL."""
    path = folder / "kill-at.new"
    path.write_text(point)
    path.replace(folder / "kill-at")


def main(path: Path) -> int:
    """Run until killed, or until the processor fails; then say why, and exit with 1."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    spec = ProcessorSpecification(**json.loads(path.read_text()))
    folder = Path(spec.folder)
    armed = folder / "kill-at"
    points = path.with_suffix(".points").open("a", buffering=1)

    def reached(point: str) -> None:
        points.write(f"{point}\n")
        if armed.exists() and armed.read_text() == point:
            armed.unlink()
            os.killpg(os.getpgrp(), signal.SIGKILL)

    clock.follow(folder, spec.clock_shift_ms)
    _note_takeover(reached)
    _put_bug_in(spec.fatal_client_id)
    processor = Processor(spec.site.settings, reached=reached)
    try:
        processor.start()
        processor.run(lambda: False)
    except ShareGroupError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    return 0


def _note_takeover(reached: Callable[[str], None]) -> None:
    """Let a takeover tell its points, too."""
    announce_to_processors, announce_to_members = LogPublisher.announce_to_processors, LogPublisher.announce_to_members

    def to_processors(self: LogPublisher, announcement: ProcessorStarted) -> Mapping[int, int]:
        reached(FENCED)
        announced = announce_to_processors(self, announcement)
        reached(ANNOUNCED)
        return announced

    def to_members(self: LogPublisher, announcement: ProcessorStarted) -> None:
        reached(OUTBOX_PUBLISHED)
        announce_to_members(self, announcement)

    LogPublisher.announce_to_processors = to_processors  # type: ignore[method-assign]
    LogPublisher.announce_to_members = to_members  # type: ignore[method-assign]


def _put_bug_in(fatal_client_id: str) -> None:
    """Let the process end when it applies a message of a client."""
    whole = GroupActors.receive

    def receive(self: GroupActors, message: LoggedRequest) -> None:
        if fatal_client_id and message.envelope.client_id == fatal_client_id:
            os._exit(EXIT_CODE_OF_THE_BUG)
        whole(self, message)

    GroupActors.receive = receive  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
