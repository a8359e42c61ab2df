"""The common part of the programs that host Spark: signals, the session, the log, the exit code, and handlers.

The first SIGTERM or SIGINT asks a program to drain and end, the second one ends it at once. Under spark-submit
the JVM is the parent of Python, else its child. A signal may be sent to the one, to the other or to both, so both
handle it, and the JVM passes it on to Python instead of ending.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from sharegroup.errors import ConfigurationError, ShareGroupError
from sharegroup.event_log import Event, log_events
from sharegroup.exit_code import ExitCode, exit_code_of
from sharegroup.spark.jvm import start_jvm
from sharegroup.spark.session import build_session, check_jars, is_running

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles signals from its creation, by the main thread, until `close`.

    Attributes:
        requested: set when the program should drain and end.
        signal_name: the first signal; empty before it.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.signal_name = ""
        self._lock = threading.Lock()
        self._receivers: set[str] = set()
        # A signal handler that sets an event can deadlock with the thread that it interrupts; a thread cannot.
        self._received, self._sent = socket.socketpair()
        self._sent.setblocking(False)
        self._handlers_before = {number: signal.signal(number, _leave_to_thread) for number in _SIGNALS}
        self._wakeup_before = signal.set_wakeup_fd(self._sent.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="stop-signals", daemon=True).start()

    def listen_in_jvm(self) -> None:
        """Handle the signals of the JVM, too, which runs."""
        gateway = SparkContext._gateway
        assert gateway is not None
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # PySpark does not type it
        java_signals = gateway.jvm.sun.misc.Signal
        for number in _SIGNALS:
            java_signals.handle(java_signals(number.name.removeprefix("SIG")), _JvmListener(self))

    def restore(self) -> None:
        """Handle signals again after a Spark context was made, which takes SIGINT over on the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, _leave_to_thread)

    def close(self) -> None:
        """Restore the earlier signal handlers of this process."""
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        # Ends the thread, which closes its own end of the pair.
        self._sent.close()

    def receive(self, receiver: str, number: int) -> None:
        """Handle a signal to one of the program's processes.

        Args:
            receiver: the process; a signal to the whole process group reaches each of them once.
        """
        with self._lock:
            if receiver in self._receivers:
                os._exit(128 + number)
            self._receivers.add(receiver)
            self.signal_name = self.signal_name or signal.Signals(number).name
        self.requested.set()

    def _listen(self) -> None:
        with self._received:
            while number := self._received.recv(1):
                if number[0] in _SIGNALS:
                    self.receive("python", number[0])


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Do nothing: the thread of `StopSignals` receives the signal, too."""


class _JvmListener:
    """A `sun.misc.SignalHandler`."""

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals

    def handle(self, java_signal: object) -> None:
        """Pass a signal on; the JVM calls this in a thread of its own."""
        self._signals.receive("jvm", java_signal.getNumber())  # type: ignore[attr-defined]  # a Java object

    class Java:
        """The Java interface, for py4j."""

        implements = ("sun.misc.SignalHandler",)


if TYPE_CHECKING:
    from sharegroup.spark.handler_calls import Handler

logger = logging.getLogger(__name__)


class Job:
    """A program that hosts Spark, from its flags to its exit code.

    Attributes:
        stop: set when the program should drain and end.

    Args:
        is_verbose: log every commit or batch, and the events of Spark.
    """

    def __init__(self, app_name: str, is_verbose: bool) -> None:
        self._app_name = app_name
        self._is_verbose = is_verbose
        self._signals = StopSignals()
        self._spark: SparkSession | None = None
        self.stop = self._signals.requested
        log_events(is_verbose)

    def start_jvm(self) -> None:
        """Start the JVM, handle its signals from now on, and check its class path.

        Raises:
            EnvironmentNotReadyError: as of `start_jvm`; or a class of the session's settings is on no class path.
        """
        start_jvm({})
        self._signals.listen_in_jvm()
        check_jars()

    def session(self) -> SparkSession:
        """Return the job's Spark session; `start_jvm` comes before."""
        self._spark = build_session(self._app_name)
        self._signals.restore()
        log_lost_updates(self._spark)
        if self._is_verbose:
            self._spark.sparkContext.setLogLevel("INFO")
        return self._spark

    def run(self, work: Callable[[Job], None]) -> int:
        """Do the work, log its end, and return the exit code."""
        try:
            work(self)
            code = ExitCode.OK
        except ShareGroupError as error:
            code = exit_code_of(error)
            logger.error(Event("failed", type=type(error).__name__, error=error.message, remedy=error.remedy or None))
        except Exception:
            code = ExitCode.FAILED
            logger.exception(Event("failed"))
        logger.info(Event("ended", exit_code=code.value, signal=self._signals.signal_name or None))
        if self._spark is not None and is_running(self._spark):
            self._spark.stop()
        self._signals.close()
        return code


def log_lost_updates(spark: SparkSession) -> None:
    """Log a line where PySpark prints a traceback: when its JVM ends while it sends the counts of a task."""

    def log(request: object, address: object) -> None:
        logger.debug(Event("task_counts_lost", reason=str(sys.exception())))

    # PySpark starts the server, and has no hook for its errors.
    spark.sparkContext._accumulatorServer.handle_error = log  # type: ignore[assignment, method-assign]


def check_handler_name(name: str) -> None:
    """Check what is known of the handler `package.module:function` before there is a session, without an import.

    Raises:
        ConfigurationError: the name has another form, or there is no such package.
    """
    module_name, _ = _handler_names(name)
    package = module_name.partition(".")[0]
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        raise _not_loaded(name, f"No module named {package!r}", _searched())


def load_handler(name: str) -> Handler:
    """Import the function `package.module:function` from the working directory or an installed package.

    There must be a session: PySpark needs it for a type in DDL, as in a module with `@F.udf("long")`.

    Raises:
        ConfigurationError: the module cannot be imported, or has no such function.
    """
    module_name, function_name = _handler_names(name)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError)
        remedy = _searched() if is_missing else "Repair the module, and start the job again."
        problem = f"import of {module_name}: {type(error).__name__}: {error}{_position(error)}"
        raise _not_loaded(name, problem, remedy) from error
    handler = getattr(module, function_name, None)
    if not callable(handler):
        problem = "has no" if handler is None else "is not callable:"
        raise _not_loaded(name, f"{module.__file__} {problem} {function_name}")
    return handler  # type: ignore[no-any-return]  # its signature is checked when it is called


def _handler_names(name: str) -> tuple[str, str]:
    """Return module and function of a handler; from now on modules are searched in the working directory, too."""
    module_name, _, function_name = name.partition(":")
    if not module_name.partition(".")[0] or not function_name:
        raise ConfigurationError(f"The handler {name!r} is not of the form package.module:function.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return module_name, function_name


def _position(error: Exception) -> str:
    """Return where in the imported code an import failed; "" for an error of the import itself."""
    # The first two frames are this module and importlib.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[2:] if not frame.filename.startswith("<")]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _searched() -> str:
    return f"Modules are searched in {os.getcwd()} and in installed packages."


def _not_loaded(name: str, problem: str, remedy: str = "") -> ConfigurationError:
    return ConfigurationError(f"The handler {name} cannot be loaded: {problem}.", remedy)
