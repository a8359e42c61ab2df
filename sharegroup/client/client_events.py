"""ClientEvents: what librdkafka's clients report, kept until a call of the application passes it to its callbacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sharegroup.config.connections import CALLBACKS
from sharegroup.logs.client_options import ClientOptions

_MOST_WAITING = 1_000
"""Of an application that makes no calls the oldest events are dropped."""


class ClientEvents:
    """Calls error_cb, stats_cb and throttle_cb on the application's thread.

    Args:
        callbacks: the application's, with its logger; keys as in `CALLBACKS`.
    """

    def __init__(self, callbacks: Mapping[str, Any]) -> None:
        self._callbacks = callbacks
        self._notify: Callable[[], None] | None = None
        self._waiting: deque[tuple[Callable[[Any], object], object]] = deque(maxlen=_MOST_WAITING)

    def attach(self, notify: Callable[[], None]) -> None:
        """Set the function that threads of the clients call once an event waits."""
        self._notify = notify

    @property
    def are_waiting(self) -> bool:
        """True if `serve` has an event to pass on."""
        return bool(self._waiting)

    def options(self, properties: Mapping[str, object]) -> ClientOptions:
        """Return the options of the clients whose events these are."""
        return ClientOptions(
            properties=properties,
            logger=self._callbacks.get("logger"),
            oauth_cb=self._callbacks.get("oauth_cb"),
            on_error=self._keeping("error_cb"),
            on_statistics=self._keeping("stats_cb"),
            on_throttle=self._keeping("throttle_cb"),
        )

    def serve(self) -> None:
        """Call the callbacks; after an exception of one, the rest waits for the next call."""
        while self._waiting:
            callback, event = self._waiting.popleft()
            callback(event)

    def _keeping(self, name: str) -> Callable[[object], None] | None:
        callback = self._callbacks.get(name)
        if callback is None:
            return None

        def keep(event: object) -> None:
            self._waiting.append((callback, event))
            if self._notify is not None:
                self._notify()

        return keep


def take_callbacks(config: dict[str, object]) -> dict[str, Any]:
    """Remove the callbacks and the logger from a configuration, and return them.

    Raises:
        TypeError, ValueError, AttributeError: one cannot be called, as confluent-kafka raises it; or it is on_commit.
    """
    if "on_commit" in config:
        raise ValueError("on_commit is not supported on ShareConsumer")
    callbacks = {name: config.pop(name) for name in CALLBACKS if name in config}
    for name, callback in callbacks.items():
        if name == "logger":
            if not hasattr(callback, "log"):
                raise AttributeError(f"'{type(callback).__name__}' object has no attribute 'log'")
        elif not callable(callback):
            kind = ValueError if name == "throttle_cb" else TypeError
            raise kind(f"expected {name} property as a callable function")
    return callbacks
