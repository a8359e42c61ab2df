"""Consumers that are lent to one operation at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from sharegroup.logs.kafka_clients import KafkaClients


class Closable(Protocol):
    """What a pool holds."""

    def close(self) -> None:
        """Give everything back."""
        ...


Client = TypeVar("Client", bound=Closable)


class ClientPool(Generic[Client]):
    """As many clients as there were operations at once; any thread may use it.

    Args:
        clients: the log that they belong to.
        make: makes one more.
    """

    def __init__(self, clients: KafkaClients, make: Callable[[], Client]) -> None:
        self._clients = clients
        self._make = make
        self._lock = threading.Lock()
        self._idle: list[Client] = []

    @contextmanager
    def lent(self, is_preferred: Callable[[Client], bool]) -> Iterator[Client]:
        """Lend an idle one, the preferred one if there is one, or a new one; one that failed is not lent again.

        Raises:
            LogError: the log is closed, or was opened before a fork.
        """
        self._clients.check_usable()
        with self._lock:
            found = next(filter(is_preferred, self._idle), self._idle[0] if self._idle else None)
            if found is not None:
                self._idle.remove(found)
        client = self._make() if found is None else found
        try:
            yield client
        except BaseException:
            client.close()
            raise
        with self._lock:
            self._idle.append(client)
        if self._clients.closed.is_set():
            self.close()

    def close(self) -> None:
        """Close what is idle; one that is lent is closed when it comes back."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()
