"""The common part of the programs that host Spark: the session, the signals of the JVM, and handlers.

Under spark-submit the JVM is the parent of Python, else its child. A signal may be sent to the one, to the other or to
both, so both handle it, and the JVM passes it on to Python instead of ending.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from sharegroup.errors import ConfigurationError
from sharegroup.program import SIGNALS, Program
from sharegroup.spark import classic, connect
from sharegroup.spark.jvm import start_jvm
from sharegroup.spark.session import build_session, check_jars, is_running

if TYPE_CHECKING:
    from sharegroup.spark.handler_calls import Handler


class Job(Program):
    """A program that hosts Spark, from its flags to its exit code.

    Args:
        is_verbose: log every commit or batch, and the events of Spark.
    """

    def __init__(self, app_name: str, is_verbose: bool) -> None:
        super().__init__(is_verbose)
        self._app_name = app_name
        self._is_verbose = is_verbose
        self._spark: SparkSession | None = None

    def start_jvm(self) -> None:
        """Start the JVM, handle its signals from now on, and check its class path; with Spark Connect there is none.

        Raises:
            EnvironmentNotReadyError: as of `start_jvm`; or a class of the session's settings is on no class path.
        """
        start_jvm({})
        if not connect.is_wanted():
            classic.handle_jvm_signals(SIGNALS, lambda number: self.signals.receive("jvm", number))
        check_jars()

    def session(self) -> SparkSession:
        """Return the job's Spark session; `start_jvm` comes before."""
        self._spark = build_session(self._app_name)
        self.signals.restore()
        if connect.is_connect(self._spark):
            return self._spark
        classic.log_lost_updates(self._spark)
        if self._is_verbose:
            classic.log_all_events(self._spark)
        return self._spark

    def close(self) -> None:
        """Stop the session."""
        if self._spark is not None and is_running(self._spark):
            self._spark.stop()
        super().close()


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
