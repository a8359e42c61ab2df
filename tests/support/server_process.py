"""A server for tests in a process of its own, at a random port, killed at the end."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import leash
from tests.support.eventually import eventually


class ServerProcess:
    """A server that listens on one port of this machine, as long as its `with` block.

    Args:
        folder: for its data, and for its output.

    Attributes:
        port: its port; 0 before the start.
    """

    def __init__(self, folder: Path) -> None:
        self.port = 0
        self._folder = folder
        self._process: subprocess.Popen[Any] | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            leash.end(self._process)

    def _start(self, command: Sequence[str]) -> None:
        """Start the program, and wait until it accepts connections."""
        with (self._folder / "server.log").open("wb") as log:
            self._process = leash.start(command, stdout=log, stderr=log)
        eventually(self._accepts, f"{type(self).__name__} accepts connections")

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False


def free_port() -> int:
    """A port that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
