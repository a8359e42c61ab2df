"""SIGTERM and SIGINT: the first asks a program to drain and end, the second one ends it at once.

spark-submit is the JVM, and Python its child. Whoever stops the program may signal the one, the other or both, so
both listen, and the JVM tells Python instead of dying.
"""

from __future__ import annotations

import os
import signal
import socket
import threading

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Listens from the time it is made until `close`; to be made by the main thread.

    Attributes:
        requested: set when the program shall drain and end.
        signal_name: the signal that asked for it; empty before.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.signal_name = ""
        self._lock = threading.Lock()
        self._told_by: set[str] = set()
        # A handler that sets an event could wait for ever for the thread that it interrupts; a thread cannot.
        self._received, self._sent = socket.socketpair()
        self._sent.setblocking(False)
        self._handlers_before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        self._wakeup_before = signal.set_wakeup_fd(self._sent.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="stop-signals", daemon=True).start()

    def listen_in_jvm(self) -> None:
        """Let the JVM tell of its signals instead of ending; starts it unless spark-submit did."""
        SparkContext._ensure_initialized()
        gateway = SparkContext._gateway
        assert gateway is not None
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # PySpark does not type it
        java_signals = gateway.jvm.sun.misc.Signal
        for number in _SIGNALS:
            java_signals.handle(java_signals(number.name.removeprefix("SIG")), _JvmListener(self))

    def close(self) -> None:
        """Give the signals of this process back to whoever handled them before."""
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        # Ends the thread, which closes its own end.
        self._sent.close()

    def told(self, listener: str, number: int) -> None:
        """A process of the program got a signal.

        Args:
            listener: which process; a signal to the whole process group reaches each of them once.
            number: the signal.
        """
        with self._lock:
            if listener in self._told_by:
                os._exit(128 + number)
            self._told_by.add(listener)
            self.signal_name = self.signal_name or signal.Signals(number).name
        self.requested.set()

    def _listen(self) -> None:
        with self._received:
            while number := self._received.recv(1):
                if number[0] in _SIGNALS:
                    self.told("python", number[0])


class _JvmListener:
    """A `sun.misc.SignalHandler`."""

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals

    def handle(self, java_signal: object) -> None:
        """Called by the JVM, in a thread of its own."""
        self._signals.told("jvm", java_signal.getNumber())  # type: ignore[attr-defined]  # a Java object

    class Java:
        """What py4j asks for."""

        implements = ("sun.misc.SignalHandler",)
