"""A site whose processor is a process of its own, with crashes and what they cost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sharegroup.protocol.rows import RecordType
from tests.crash.processor_process import ProcessorProcess
from tests.support.eventually import eventually
from tests.support.site import RESPONSES, Site

T = TypeVar("T")

_PAUSE_S = 0.3
"""Between two looks at the state table, which cost much."""
_LONGEST_S = 240
"""For whatever is waited for; only failures wait so long, and machines that are busy."""


@dataclass
class Recoveries:
    """Crashes and recoveries of a test run.

    Attributes:
        seconds: kind of crash → seconds from it to the first answer after it, for each.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, kind: str, seconds: float) -> None:
        self.seconds.setdefault(kind, []).append(seconds)


class Deployment:
    """A site, and the process that runs its processor.

    Args:
        folder: the site's folder.
        recoveries: where to note what crashes cost.
    """

    def __init__(self, folder: Path, recoveries: Recoveries) -> None:
        self.site = Site(None, folder)
        self.folder = folder
        self.recoveries = recoveries
        self._processor: ProcessorProcess | None = None

    @property
    def processor(self) -> ProcessorProcess:
        """The processor's process, be it alive or not."""
        assert self._processor is not None
        return self._processor

    def start(self) -> None:
        """Start the first processor, and wait for its first batch."""
        self.spawn()
        self.until(self.site.reader.exists, "there is a state table", _PAUSE_S)
        self.until(lambda: self.site.rows(None, RecordType.FENCE), "the processor has its fence", _PAUSE_S)

    def spawn(self, checkpoint: str = "") -> None:
        """Start a processor, which is the one from now on, and wait for nothing.

        Args:
            checkpoint: name of its checkpoint folder, and that of all later ones; by default the last one's.
        """
        self.site.checkpoint = checkpoint or self.site.checkpoint
        self._processor = ProcessorProcess(self.folder, self.site.checkpoint)

    def crash(self, kind: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """SIGKILL the processor, do something while there is none, start another one and wait for its first answer."""
        self.processor.kill()
        with self.recovering(kind):
            meanwhile()
            self.spawn()

    @contextmanager
    def recovering(self, kind: str) -> Iterator[None]:
        """Note how long it takes from here to the first answer after the block."""
        before, crashed_s = self.answered(), time.monotonic()
        yield
        self.until(lambda: self.answered() > before, f"an answer after: {kind}")
        self.recoveries.add(kind, time.monotonic() - crashed_s)

    def answered(self) -> int:
        """Answers so far."""
        return sum(found.end_offset for found in self.site.log.offsets(RESPONSES).values())

    def committed_batches(self) -> set[int]:
        """Batches that are in Spark's commit log."""
        return {int(path.name) for path in self.commit_log.glob("*") if path.name.isdecimal()}

    def await_batches(self, count: int) -> None:
        """Wait until so many more batches are in Spark's commit log."""
        wanted = max(self.committed_batches()) + count
        self.until(lambda: max(self.committed_batches(), default=-1) >= wanted, f"{count} more batches")

    @property
    def commit_log(self) -> Path:
        return self.site.checkpoint_path / "query" / "commits"

    def forget_last_commit(self) -> int:
        """Delete the last entry of Spark's commit log; returns its batch id."""
        last = max(self.committed_batches())
        for path in (self.commit_log / str(last), self.commit_log / f".{last}.crc"):
            path.unlink(missing_ok=True)
        return last

    def forget_checkpoint(self) -> None:
        """Delete the whole checkpoint, but for what a running processor writes meanwhile."""
        shutil.rmtree(self.site.checkpoint_path, ignore_errors=True)

    def until(self, probe: Callable[[], T], what: str, pause_s: float = 0.02) -> T:
        """As `eventually`, but a processor that ended ends the wait with what it said."""

        def checked() -> T:
            seen = probe()
            if not seen and not self.processor.is_running:
                raise AssertionError(f"the processor ended before: {what}\n{self.processor.output[-4_000:]}")
            return seen

        return eventually(checked, what, _LONGEST_S, pause_s)

    def close(self) -> None:
        if self._processor is not None:
            self._processor.kill()
        self.site.close()
