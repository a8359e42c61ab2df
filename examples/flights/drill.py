"""The example as a whole: load, drain with members of both kinds, kill one of them, and account for every record."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.live import Live
from rich.progress import Progress

from examples.flights.flights import TOPIC, load_flights
from examples.flights.progress import DrainDisplay, LiveHistory
from examples.flights.report import Account, account_for
from examples.flights.sinks import create_sink
from examples.flights.spark_member import create_spark_sink, handle_flights
from sharegroup.audit.history.group_history import GroupHistory, group_history
from sharegroup.audit.history.row_source import TableRows
from sharegroup.audit.sinks.verify_sinks import verify_sinks
from sharegroup.audit.verification.verify import verify
from sharegroup.config.loader import Settings
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import LogUnavailableError, ShareGroupError
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.spark.processor_query import ProcessorQuery
from sharegroup.spark.worker import process
from sharegroup.state.reader import StateTableReader

GROUP = "flights"
SPARK_MEMBERS = ("spark-worker-1", "spark-worker-2")
PYTHON_MEMBERS = ("python-consumer-1", "python-consumer-2")
KILLED_MEMBER = "python-consumer-killed"
SUCCESSOR = "python-consumer-successor"
"""Takes the place of the killed member: it has the same sink, so it looks up what that one may have written."""
SPARK_SINK = "flights_processed"

_REFRESH_S = 0.5
_BEGIN_DEADLINE_S = 120
_DRAIN_DEADLINE_S = 600
_STOP_DEADLINE_S = 30


@dataclass
class Drill:
    """One run of the example.

    Args:
        folder: folder of the run; the sinks go there.
        member_command: arguments that start a Python member, before its name and sink.
    """

    settings: Settings
    folder: Path
    member_command: Sequence[str]
    console: Console
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _worker_failures: list[BaseException] = field(default_factory=list)
    _killed_ms: int | None = None

    def prepare(self) -> None:
        """Remove what an earlier run left, load the flights, and create the sinks."""
        for path in (self._path("log_path").parent, self._path("state_table_path"), self._path("checkpoint_path")):
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self._sinks[0].parent, ignore_errors=True)
        for sink in self._sinks[1:]:
            create_sink(sink)
        with self._log() as log, Progress(console=self.console) as progress:
            task = progress.add_task("loading flights", total=None)
            load_flights(log, lambda done, total: progress.update(task, completed=done, total=total))

    def drain(self, spark: SparkSession) -> None:
        """Run the processor and the members until every record is finished.

        Raises:
            ShareGroupError: the processor or a worker failed, or the time is over.
        """
        create_spark_sink(spark, str(self._sinks[0]))
        processor = ProcessorQuery(spark, self.settings)
        processor.start()
        live = LiveHistory(StateTableReader(self.settings.processor.state_table_path), GROUP)
        try:
            for name in SPARK_MEMBERS:
                self._start_worker(spark, name)
            # Spark's first jobs take seconds, in which consumers would drain the topic.
            self._watch(live, processor, _workers_have_begun, _BEGIN_DEADLINE_S)
            for name in (*PYTHON_MEMBERS, KILLED_MEMBER):
                self._start_process(name)
            self._watch(live, processor, self._is_drained, _DRAIN_DEADLINE_S)
        finally:
            self._stop_members()
            processor.stop()

    def account(self) -> Account:
        """Compare the state table with the input and the sinks."""
        state_table_path = self.settings.processor.state_table_path
        rows = StateTableReader(state_table_path).rows()
        history = group_history(GROUP, rows)
        verification = verify(rows, self.settings.broker)
        reconciled = verify_sinks(TableRows(state_table_path), map(str, self._sinks), GROUP)
        with self._log() as log:
            return account_for(log, history, verification, reconciled, self._sinks, (*SPARK_MEMBERS, *PYTHON_MEMBERS))

    @property
    def _sinks(self) -> list[Path]:
        return [self._sink(name) for name in (SPARK_SINK, *PYTHON_MEMBERS, KILLED_MEMBER)]

    def _sink(self, name: str) -> Path:
        return self.folder / "sinks" / name.replace("-", "_")

    def _path(self, setting: str) -> Path:
        return Path(getattr(self.settings.processor, setting))

    def _log(self) -> Log:
        return open_log(str(self.settings.processor.log_path))

    def _start_process(self, name: str, sink_of: str | None = None) -> None:
        sink = self._sink(sink_of or name)
        command = [sys.executable, *self.member_command, "--name", name, "--sink", str(sink)]
        self._processes[name] = subprocess.Popen(command)

    def _start_worker(self, spark: SparkSession, name: str) -> None:
        config = {
            **self.settings.worker,
            "log.path": str(self._path("log_path").absolute()),
            "group.id": GROUP,
            "client.id": name,
            "topics": TOPIC,
        }
        sink = self._sinks[0].absolute()

        def work() -> None:
            try:
                process(spark, config, handle_flights, self._stop, sink=sink)
            except BaseException as failure:
                self._worker_failures.append(failure)

        self._threads.append(threading.Thread(target=work, name=name))
        self._threads[-1].start()

    def _watch(
        self, live: LiveHistory, processor: ProcessorQuery, is_done: Callable[[GroupHistory], bool], deadline_s: float
    ) -> None:
        """Show progress until something is the case."""
        with self._log() as log:
            display = DrainDisplay({p: offsets.end_offset for p, offsets in log.offsets(TOPIC).items()})
        give_up_at = time.monotonic() + deadline_s
        with Live(console=self.console, auto_refresh=False, transient=not self.console.is_terminal) as picture:
            while True:
                history = live.refresh()
                picture.update(display.render(history), refresh=self.console.is_terminal)
                if is_done(history):
                    return
                self._check_members(processor)
                self._kill_when_holding(history)
                self._report_return(history)
                if time.monotonic() > give_up_at:
                    raise LogUnavailableError(f"The group was not done after {deadline_s} s.", "See the log above.")
                self._stop.wait(_REFRESH_S)

    def _is_drained(self, history: GroupHistory) -> bool:
        with self._log() as log:
            ends = {partition: offsets.end_offset for partition, offsets in log.offsets(TOPIC).items()}
        starts = {partition.partition: partition.start_offset for partition in history.partitions.values()}
        return starts == ends

    def _kill_when_holding(self, history: GroupHistory) -> None:
        """SIGKILL the member that is to be killed as soon as it has locks and has got some work done."""
        victim = self._processes.get(KILLED_MEMBER)
        member_id = next((m for m, client_id in history.client_ids.items() if client_id == KILLED_MEMBER), None)
        if victim is None or member_id is None or not history.accepted_by_member[member_id]:
            return
        held = sum(
            run.size
            for partition in history.partitions.values()
            for run in partition.records
            if run.state is RecordState.ACQUIRED and run.member_id == member_id
        )
        if held:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            del self._processes[KILLED_MEMBER]
            self._killed_ms = time.time_ns() // 1_000_000
            self.console.print(f"killed {KILLED_MEMBER} (SIGKILL) while it held {held:,} records")
            self._start_process(SUCCESSOR, sink_of=KILLED_MEMBER)

    def _report_return(self, history: GroupHistory) -> None:
        """Report once how long the killed member's records were in doubt, and how many were in its sink."""
        in_doubt, returned = (history.record_count(cause) for cause in (Cause.IN_DOUBT, Cause.MEMBER_ENDED))
        if self._killed_ms is not None and in_doubt and not history.count(RecordState.RESOLVING):
            decided_ms = history.last_ms(Cause.MEMBER_ENDED) or time.time_ns() // 1_000_000
            seconds = max(0, decided_ms - self._killed_ms) / 1_000
            self._killed_ms = None
            self.console.print(
                f"its successor has looked them up after {seconds:.2f} s: {in_doubt - returned:,} were in the sink, "
                f"{returned:,} come again"
            )

    def _check_members(self, processor: ProcessorQuery) -> None:
        processor.raise_failure()
        for failure in self._worker_failures:
            raise failure
        for name, member in self._processes.items():
            if member.poll() is not None:
                raise ShareGroupError(f"Member {name} ended with exit code {member.returncode}.", "See its output.")

    def _stop_members(self) -> None:
        self._stop.set()
        for member in self._processes.values():
            member.terminate()
        for thread in self._threads:
            thread.join(_STOP_DEADLINE_S)
        for member in self._processes.values():
            try:
                member.wait(_STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                member.kill()


def _workers_have_begun(history: GroupHistory) -> bool:
    accepted = {history.client_ids[member] for member, count in history.accepted_by_member.items() if count}
    return {*SPARK_MEMBERS} <= accepted
