"""The jobs as an operator runs them: `spark-submit` in a folder of its own, with the configuration of the README."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from signal import SIG_DFL, Signals, signal

from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.verification.verify import verify
from sharegroup.config.loader import load_settings
from sharegroup.core.record_state import RecordState
from sharegroup.errors import StateTableError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import Log, NewRecord
from sharegroup.state.reader import StateTableReader
from tests.conftest import ROOT
from tests.support import leash
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.fast_start import is_fast_start
from tests.support.working_folder import in_folder

CONFIG = ROOT / "conf" / "local.yaml"
SETTINGS = load_settings(CONFIG, {})
GROUP = "orders"
HANDLER = """
from pyspark.sql import functions as F


@F.udf("long")
def length(value):
    return len(value)


def accept_all(records):
    records.select(length("value")).collect()
"""
BROKEN_HANDLER = """
def accept_all(records):
    records.count()


1 / 0
"""


class Job:
    """A job that spark-submit has started, in a session of its own.

    Args:
        folder: where it runs.
        arguments: what follows `spark-submit`.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        number = len(list(folder.glob("*.out")))
        self._output_path = folder / f"{number}.out"
        self._arguments = arguments
        foreign = ("PYSPARK_", "SHAREGROUP_", "SPARK_")
        environment = {k: v for k, v in os.environ.items() if is_fast_start(k) or not k.startswith(foreign)}
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        with self._output_path.open("wb") as output:
            self._process = leash.start(
                ["spark-submit", *arguments],
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=output,
                # A terminal's Ctrl-C is heard; a test run in the background would hand down that it is ignored.
                preexec_fn=lambda: signal(Signals.SIGINT, SIG_DFL),
            )

    @property
    def output(self) -> str:
        return self._output_path.read_text(errors="replace")

    def events(self, name: str) -> list[str]:
        """The lines of its log about an event."""
        return [line for line in self.output.splitlines() if f" event={name}" in line]

    def await_event(self, name: str) -> None:
        """Return when its log has the event; fail when the job ends before."""

        def is_there() -> bool:
            assert self.events(name) or self._process.poll() is None, self.output
            return bool(self.events(name))

        eventually(is_there, f"{self._arguments} logs {name}")

    def signal(self, number: Signals) -> None:
        """To the process that was started, as a service manager does it."""
        self._process.send_signal(number)

    def signal_group(self, number: Signals) -> None:
        """To all its processes, as a terminal does it."""
        os.killpg(self._process.pid, number)

    def exit_code(self) -> int:
        """Wait until all its processes have ended; the exit code of spark-submit."""
        code = self._process.wait(DEADLINE_S)
        eventually(lambda: not self._has_processes(), f"all processes of {self._arguments} end")
        return code

    def close(self) -> None:
        """Kill what is left of it."""
        leash.end(self._process)

    def _has_processes(self) -> bool:
        """True if any process of its session runs; one that ended and was not waited for does not."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(session) == self._process.pid and state != "Z":
                return True
        return False


class Deployment:
    """One folder with a log, a state table, and the jobs that run on them.

    Args:
        folder: the working folder of the jobs.
        config: their configuration file.
        flags: what they are all given besides.
        topic: what the group is subscribed to.
    """

    def __init__(self, folder: Path, config: Path = CONFIG, flags: tuple[str, ...] = (), topic: str = "orders") -> None:
        self.folder = folder
        self._config = config
        self._flags = flags
        self._topic = topic
        self._jobs: list[Job] = []
        (folder / "handlers.py").write_text(HANDLER)
        (folder / "broken.py").write_text(BROKEN_HANDLER)

    def processor(self, *flags: str) -> Job:
        # So that a worker has every partition although one that was killed is still a member.
        assignors = ("--set", "group.share.assignors=all")
        return self._started("share_group_processor.py", *assignors, *flags)

    def worker(self, *flags: str, handler: str = "handlers:accept_all") -> Job:
        return self._started("share_worker.py", "--group", GROUP, "--topic", self._topic, *flags, handler)

    def close(self) -> None:
        for job in self._jobs:
            job.close()

    def open_log(self) -> Log:
        """The log of the jobs."""
        return LocalLog(in_folder(self.folder, SETTINGS.processor.log_path))

    def produce(self, count: int) -> None:
        """Append records to each of the two partitions of the topic."""
        with closing(self.open_log()) as log:
            log.create_topic(self._topic, 2, {}, if_not_exists=True)
            for partition in range(2):
                log.append(self._topic, partition, [NewRecord(None, b"secret payload")] * count)

    def await_drained(self) -> None:
        """Return when every record is finished."""
        eventually(self.is_drained, "every record is finished")

    def is_drained(self) -> bool:
        with closing(self.open_log()) as log:
            ends = {partition: offsets.end_offset for partition, offsets in log.offsets(self._topic).items()}
        try:
            history = group_history(GROUP, self._reader.rows())
        except StateTableError:
            # Not made yet.
            return False
        return {offsets.partition: offsets.start_offset for offsets in history.partitions.values()} == ends

    def accepted_count(self) -> int:
        return group_history(GROUP, self._reader.rows()).count(RecordState.ACKNOWLEDGED)

    def check_audit(self) -> None:
        assert verify(self._reader.rows(), SETTINGS.broker).findings == []

    def check_logs(self) -> None:
        """One line an event, and nothing that was in a record."""
        line = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ \w+ \w+=.+")
        for job in self._jobs:
            lines = [text for text in job.output.splitlines() if not text.startswith("WARNING: Using incubator")]
            others = [text for text in lines if not line.fullmatch(text)]
            assert not others, "\n".join(others)
            assert "secret" not in job.output

    @property
    def _reader(self) -> StateTableReader:
        path = load_settings(self._config, {}).processor.state_table_path
        return StateTableReader(str(in_folder(self.folder, path)))

    def _started(self, program: str, *flags: str) -> Job:
        job = Job(self.folder, str(ROOT / "jobs" / program), "--config", str(self._config), *self._flags, *flags)
        self._jobs.append(job)
        return job


@contextmanager
def deployed(folder: Path) -> Iterator[Deployment]:
    """A deployment whose jobs are gone at the end."""
    deployment = Deployment(folder)
    try:
        yield deployment
    finally:
        deployment.close()
