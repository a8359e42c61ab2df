"""The host of the processor: a process of its own, with Spark or without."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.processes import die_with_parent, pss_bytes, session_pids
from benchmarks.report import percentile
from benchmarks.site import ROOT, Site
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.open import open_log

_START_TIMEOUT_S = 180
_STOP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class HostEvent:
    """A line of the host's events.

    Attributes:
        event: begun, started, figures or ended.
        time_s: when, on the monotonic clock.
        figures: the loop's cumulative figures; empty before there are some.
    """

    event: str
    time_s: float
    figures: dict[str, Any]


class ProcessorHost:
    """Starts, stops and kills a processor; a context manager that starts it and stops it.

    Args:
        kind: `plain`, a Python process without Spark, or `spark`, the job.
        name: of its files, which tells several on one site apart.
        flags: further flags of its program.
    """

    def __init__(self, kind: str, site: Site, name: str = "processor", flags: Sequence[str] = ()) -> None:
        self._kind = kind
        self._site = site
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._events = site.folder / f"{name}.jsonl"
        self._output = site.folder / f"{name}.log"

    def start(self) -> None:
        """Start it, and wait until its topics exist.

        Raises:
            RuntimeError: it ended at its start.
            TimeoutError: the topics do not exist in time.
        """
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command(),
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._await_topics()

    def stop(self) -> None:
        """End it as an operator does, and wait for its end."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                print(f"processor: did not end within {_STOP_TIMEOUT_S} s, killed", flush=True)
        self.kill()

    def kill(self) -> None:
        """End it, and all that it has started, at once."""
        if self._process is not None:
            for pid in session_pids(self._process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._process.wait()
            self._process = None

    def check(self) -> None:
        """Raise RuntimeError when the processor has ended, with the end of its output."""
        if self._process is None or self._process.poll() is None:
            return
        text = self._output.read_text(errors="replace")[-3_000:]
        raise RuntimeError(f"The processor ended with exit code {self._process.returncode}:\n{text}")

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    @property
    def pids(self) -> list[int]:
        """The processor's process, and those that it has started: a JVM, the upkeep."""
        return session_pids(self._process.pid) if self._process is not None else []

    def pss_bytes(self) -> int:
        """Their memory together."""
        return sum(pss_bytes(pid) for pid in self.pids)

    def events(self) -> list[HostEvent]:
        """Events and figures that the plain host has written so far; a job of Spark writes none."""
        return list(_read_events(self._events)) if self._events.exists() else []

    def figures(self) -> dict[str, Any]:
        """The loop's cumulative figures that were written last."""
        return next((event.figures for event in reversed(self.events()) if event.figures), {})

    def commit_times_ms(self, from_s: float, until_s: float) -> list[float]:
        """Mean time of a commit in each interval between two figures, between two times of the monotonic clock."""
        return commit_times_ms([event for event in self.events() if from_s <= event.time_s < until_s])

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._process is not None and self._process.poll() is not None:
            print(self._output.read_text(errors="replace")[-3_000:], flush=True)
        self.stop()

    def _command(self) -> list[str]:
        if self._kind == "spark":
            job = str(ROOT / "jobs" / "share_group_processor.py")
            return ["spark-submit", job, *self._site.flags, *self._flags]
        module = ["-m", "benchmarks.processor_host", "--events", str(self._events)]
        return [sys.executable, *module, *self._site.flags, *self._flags]

    def _await_topics(self) -> None:
        give_up_s = time.monotonic() + _START_TIMEOUT_S
        with open_log(self._site.settings.log) as log:
            while time.monotonic() < give_up_s:
                self.check()
                try:
                    log.describe_topic(self._site.settings.processor.request_topic_name)
                    log.describe_topic(self._site.settings.processor.response_topic_name)
                    return
                except UnknownTopicError:
                    time.sleep(0.02)
        raise TimeoutError(f"The processor did not create its topics within {_START_TIMEOUT_S} s.")


def commit_times_ms(events: list[HostEvent]) -> list[float]:
    """Mean time of a commit between each two figures that follow each other."""
    figures = [event.figures for event in events if event.figures]
    return [
        (after["commit_ms"] - before["commit_ms"]) / (after["commits"] - before["commits"])
        for before, after in itertools.pairwise(figures)
        if after["commits"] > before["commits"]
    ]


def step_text(figures: dict[str, Any]) -> str:
    """The loop's figures by step, for people."""
    if not figures:
        return "loop: no figures"
    commits, cuts = max(figures["commits"], 1), max(figures["cuts"], 1)
    return (
        f"loop: {figures['messages']:,} messages in {figures['cuts']:,} cuts and {figures['commits']:,} commits, "
        f"{figures['responses']:,} responses; ms a cut: take {figures['take_ms'] / cuts:.2f}, apply "
        f"{figures['apply_ms'] / cuts:.2f}; ms a commit: {figures['commit_ms'] / commits:.2f}, publish "
        f"{figures['publish_ms'] / commits:.2f}"
    )


def commit_text(times_ms: list[float]) -> str:
    """Times of commits, for people."""
    return f"commit p50 {percentile(times_ms, 50):.1f} ms" if times_ms else "no commit times"


def _read_events(path: Path) -> Iterator[HostEvent]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        # The last line may be on its way.
        if line.endswith("\n"):
            entry = json.loads(line)
            yield HostEvent(entry["event"], entry["time_s"], entry["figures"] or {})
