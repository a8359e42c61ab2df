"""A Kafka broker that falls silent for its clients only: the cluster still names it as a leader."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.kafka_broker import KafkaBroker

_BYTES = 65_536


class _Proxy:
    """Forwards TCP connections to a port of this machine until it falls silent: they stay open, and nothing passes."""

    def __init__(self) -> None:
        self.server_port = 0
        self.is_silent = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections, and accept no more."""
        self._listener.close()
        self.end_connections()

    def end_connections(self) -> None:
        """End all connections: what was sent meanwhile is lost."""
        ended, self._sockets = self._sockets, []
        for each in ended:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
                self._sockets += client, server
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_BYTES):
                if not self.is_silent.is_set():
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)


class SilentBroker(KafkaBroker):
    """A second node that clients of its plain listener reach through a proxy."""

    def __init__(self, version: str, folder: Path, joins: KafkaBroker) -> None:
        super().__init__(version, folder, joins=joins)
        self._proxy = _Proxy()

    def fall_silent(self) -> None:
        """Respond to no client any more."""
        self._proxy.is_silent.set()

    def respond_again(self) -> None:
        """Respond to the clients again: they connect again."""
        self._proxy.is_silent.clear()
        self._proxy.end_connections()

    def __enter__(self) -> Self:
        super().__enter__()
        self._proxy.server_port = self._ports["plain"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._proxy.close()

    def _properties(self) -> str:
        advertised = "advertised.listeners=PLAIN://localhost"
        return super()._properties().replace(f"{advertised}:{self._ports['plain']}", f"{advertised}:{self._proxy.port}")
