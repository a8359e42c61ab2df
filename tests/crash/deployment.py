"""A site whose processor is a process of its own, with crashes and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sharegroup.processor.commit import CommitPoint
from tests.crash.processor_process import ProcessorProcess, ProcessorSpecification
from tests.kafka.site import KafkaSite
from tests.support.eventually import eventually
from tests.support.recoveries import Recoveries
from tests.support.site import Site

T = TypeVar("T")


class Deployment:
    """A site, and the process that runs its processor.

    Args:
        folder: the site's folder.
        recoveries: where to note what crashes cost.
        site: one on Kafka; by default one with an embedded log.
    """

    def __init__(self, folder: Path, recoveries: Recoveries, site: KafkaSite | None = None) -> None:
        self.site = site or Site(folder)
        self.folder = folder
        self.recoveries = recoveries
        self._processor: ProcessorProcess | None = None

    @property
    def processor(self) -> ProcessorProcess:
        """The processor's process, be it alive or not."""
        assert self._processor is not None
        return self._processor

    def start(self) -> None:
        """Start the first processor, and wait until it responds."""
        self.spawn()
        name = self._response_topic
        self.until(lambda: name in {topic.name for topic in self.site.log.topics()}, "the topics are made")
        self.until(lambda: self.response_count() > 0, "the processor has announced itself")

    def spawn(
        self, broker: Mapping[str, object] | None = None, fatal_client_id: str = "", clock_shift_ms: int = 0
    ) -> None:
        """Start a processor, which is the one from now on, and wait for nothing.

        Args:
            broker: as in its specification.
            fatal_client_id: as in its specification.
            clock_shift_ms: as in its specification.
        """
        kafka = self.site if isinstance(self.site, KafkaSite) else None
        specification = ProcessorSpecification(
            str(self.folder),
            dict(broker or {}),
            fatal_client_id,
            clock_shift_ms,
            kafka.kafka.bootstrap_servers if kafka else "",
            kafka.stem if kafka else "",
        )
        self._processor = ProcessorProcess(specification)

    def crash(self, kind: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """SIGKILL the processor, do something while there is none, start another and wait for its first response."""
        self.processor.kill()
        with self.recovering(kind):
            meanwhile()
            self.spawn()

    @contextmanager
    def recovering(self, kind: str) -> Iterator[None]:
        """Note how long it takes from here to the first response to a member after the block."""
        crashed_s = time.monotonic()
        yield
        processor = self.processor
        self.until(lambda: CommitPoint.PUBLISHED in processor.points_passed(), f"a response after: {kind}")
        self.recoveries.add(kind, time.monotonic() - crashed_s)

    def response_count(self) -> int:
        """Return the number of responses so far, announcements of processors included."""
        return sum(offsets.end_offset for offsets in self.site.log.offsets(self._response_topic).values())

    @property
    def _response_topic(self) -> str:
        return self.site.settings.processor.response_topic_name

    def await_commits(self, count: int) -> None:
        """Wait until the processor has made so many more commits."""
        processor = self.processor
        wanted = processor.points_passed().count(CommitPoint.COMMITTED) + count
        self.until(lambda: processor.points_passed().count(CommitPoint.COMMITTED) >= wanted, f"{count} more commits")

    def until(self, probe: Callable[[], T | None], what: str, pause_s: float = 0.02) -> T:
        """As `eventually`, but a processor that ended ends the wait with what it printed."""

        def checked() -> T | None:
            seen = probe()
            if not seen and not self.processor.is_running:
                raise AssertionError(f"the processor ended before: {what}\n{self.processor.output[-4_000:]}")
            return seen

        return eventually(checked, what, pause_s=pause_s)

    def close(self) -> None:
        """Kill the processor, and close the log."""
        if self._processor is not None:
            self._processor.kill()
        self.site.close()
