"""A process with all that it starts, as one group that tests signal; its output goes to a file."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support import leash
from tests.support.eventually import DEADLINE_S

_ROOT = Path(__file__).resolve().parent.parent.parent


class ProcessGroup:
    """Runs `python -m MODULE ARGUMENTS` in a session of its own.

    Args:
        module: the module to run.
        output_path: where its output goes.
    """

    def __init__(self, module: str, arguments: Sequence[str], output_path: Path) -> None:
        self._output_path = output_path
        with output_path.open("ab") as output:
            self._process = leash.start(
                [sys.executable, "-m", module, *arguments], cwd=_ROOT, stdout=output, stderr=output
            )

    @property
    def pid(self) -> int:
        """Id of the process, and of its group."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return True while it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to all of them at once."""
        leash.end(self._process)

    def kill_first(self) -> None:
        """SIGKILL to the first of them only: what it has started goes on, until `kill`."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP to all of them."""
        self._signal(signal.SIGSTOP)
        # Until it has stopped it goes on, on a busy machine for a while.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT to all of them."""
        self._signal(signal.SIGCONT)

    def await_end(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait until it ended by itself; its exit code."""
        return self._process.wait(timeout_s)

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self._output_path.read_text(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.killpg(self._process.pid, number)
