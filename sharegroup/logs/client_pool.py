"""A pool of the clients that operations of a Kafka log borrow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from sharegroup.logs.kafka_clients import KafkaClients


class Closable(Protocol):
    """A member of the pool."""

    def close(self) -> None:
        """Release all resources."""
        ...


Client = TypeVar("Client", bound=Closable)


class ClientPool(Generic[Client]):
    """A pool with as many clients as there were operations at once; any thread may use it.

    Args:
        clients: creates the log's clients; checks that it is open.
    """

    def __init__(self, clients: KafkaClients, make: Callable[[], Client]) -> None:
        self._clients = clients
        self._make = make
        self._lock = threading.Lock()
        self._idle: list[Client] = []

    @contextmanager
    def lent(self, is_preferred: Callable[[Client], bool]) -> Iterator[Client]:
        """Lend an idle client, the preferred one if there is one, or a new one; a client that failed is not lent again.

        Raises:
            LogError: the log is closed, or was opened before a fork.
        """
        self._clients.check_usable()
        with self._lock:
            idle_client = next(filter(is_preferred, self._idle), self._idle[0] if self._idle else None)
            if idle_client is not None:
                self._idle.remove(idle_client)
        client = self._make() if idle_client is None else idle_client
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
        """Close idle clients; a lent client is closed when it comes back."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()
