"""Members with sinks in processes of their own; each is started again after every kill, with the same sink."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from deltalake import DeltaTable

from tests.crash.pausing import pause
from tests.crash.process_group import ProcessGroup
from tests.support.site import Site

CONSUMER, WORKER, QUERY = "consumer", "worker", "query"
APPEND, MERGE = "append", "merge"
EXPLICIT, IMPLICIT = "explicit", "implicit"

FAILS_IN_COMPANY = 7
"""Of 300 offsets, the one with which a worker's handler fails unless it is called with it alone."""


@dataclass(frozen=True)
class Specification:
    """The work of a member.

    Attributes:
        folder: where its files are.
        channel: configuration of its log, and of the topics between it and the processor.
        sink: the table.
        kind: CONSUMER, WORKER or QUERY.
        mode: of a consumer its acknowledgement mode, else how results get into the table.
    """

    folder: str
    channel: dict[str, str]
    group_id: str
    topic: str
    client_id: str
    sink: str
    kind: str
    mode: str

    @property
    def stem(self) -> Path:
        """Path of its files, without their suffixes."""
        return Path(self.folder, "sink-members", self.client_id)

    @property
    def is_spark(self) -> bool:
        """True if it is a Spark application."""
        return self.kind != CONSUMER


def load_specification(path: str) -> Specification:
    """Return the specification that a member's process was started with."""
    return Specification(**json.loads(Path(path).read_text()))


def is_rejected(offset: int) -> bool:
    """Return True for a record that members reject, but for consumers in implicit mode."""
    return offset % 97 == 5


class SinkMember:
    """A member; it runs until `end`."""

    def __init__(self, site: Site, specification: Specification) -> None:
        self.specification = specification
        self._site = site
        self._ended: list[ProcessGroup] = []
        self.start()

    def start(self) -> None:
        """Start its process."""
        stem = self.specification.stem
        stem.parent.mkdir(exist_ok=True)
        path = stem.with_suffix(".json")
        path.write_text(json.dumps(asdict(self.specification)))
        module = "tests.crash.spark_sink_process" if self.specification.is_spark else "tests.crash.transacting_process"
        self._process = ProcessGroup(module, [str(path)], stem.with_suffix(".log"))

    def kill(self, *, spares_jvm: bool = False) -> None:
        """SIGKILL.

        Args:
            spares_jvm: kill the program only: its JVM ends by itself, and may still commit meanwhile.
        """
        if spares_jvm:
            self._process.kill_first()
            self._ended.append(self._process)
        else:
            self._process.kill()

    def lose_checkpoint(self) -> None:
        """Move the checkpoint of a query that was killed away."""
        folder = self.specification.stem
        if folder.exists():
            number = len(list(folder.parent.glob(f"{folder.name}-lost-*")))
            folder.rename(folder.with_name(f"{folder.name}-lost-{number}"))

    def pause(self) -> None:
        """SIGSTOP."""
        pause(self._site, self._process)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.resume()

    def check_running(self) -> None:
        """Fail if it has ended by itself."""
        assert self._process.is_running, f"{self.specification.client_id} ended:\n{self._process.output[-6_000:]}"

    @property
    def table_version(self) -> int:
        """Version of its sink."""
        return int(DeltaTable(self.specification.sink).version())

    def end(self) -> None:
        """Kill all that it has started."""
        for process in (*self._ended, self._process):
            process.kill()
