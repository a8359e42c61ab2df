"""The common part of the programs for spark-submit: flags, signals, the session, the log, and the exit code."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from pyspark.sql import SparkSession

from sharegroup.errors import ConfigurationError, ShareGroupError
from sharegroup.event_log import Event, log_events
from sharegroup.exit_code import ExitCode, exit_code_of, exit_codes_text
from sharegroup.spark.session import build_session, is_running
from sharegroup.spark.stop_signals import StopSignals
from sharegroup.spark.worker import Handler

logger = logging.getLogger(__name__)


def job_parser(description: str, once: str, wait: str, wait_s: float) -> argparse.ArgumentParser:
    """A parser with the flags that all jobs have.

    Args:
        description: what the job does.
        once: help of the flag `--once`.
        wait: help of the flag `--wait`, without its default.
        wait_s: default of the flag `--wait`.
    """
    parser = argparse.ArgumentParser(
        description=description, epilog=exit_codes_text(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="configuration file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--once", action="store_true", help=once)
    parser.add_argument("--wait", type=float, default=wait_s, metavar="SECONDS", help=f"{wait} (default %(default)g)")
    parser.add_argument("--verbose", action="store_true", help="log every commit or batch, and what Spark logs")
    return parser


class Job:
    """A program for spark-submit, from its flags to its exit code.

    Attributes:
        stop: set when the program shall drain and end.

    Args:
        app_name: name of the Spark application.
        is_verbose: whether to log everything.
    """

    def __init__(self, app_name: str, is_verbose: bool) -> None:
        self._app_name = app_name
        self._is_verbose = is_verbose
        self._signals = StopSignals()
        self._spark: SparkSession | None = None
        self.stop = self._signals.requested
        log_events(is_verbose)

    def session(self) -> SparkSession:
        """The job's Spark session; from now on signals to its JVM are heard."""
        self._signals.listen_in_jvm()
        self._spark = build_session(self._app_name)
        if self._is_verbose:
            self._spark.sparkContext.setLogLevel("INFO")
        return self._spark

    def run(self, work: Callable[[Job], None]) -> int:
        """Do the work, log how it ended, and return the exit code."""
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


def end_process(code: int) -> NoReturn:
    """End this process, even if a handler of a worker does not end: its thread would keep the interpreter."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def load_handler(name: str) -> Handler:
    """The function `package.module:function`, from the working directory or from what is installed.

    Raises:
        ConfigurationError: there is no such function.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ConfigurationError(f"The handler {name!r} is not of the form package.module:function.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigurationError(
            f"The handler {name} cannot be loaded: import of {module_name}: {type(error).__name__}: {error}.",
            f"Modules are looked for in {os.getcwd()} and in what is installed.",
        ) from error
    handler = getattr(module, function_name, None)
    if not callable(handler):
        problem = "has no" if handler is None else "is not callable:"
        raise ConfigurationError(f"The handler {name} cannot be loaded: {module.__file__} {problem} {function_name}.")
    return handler  # type: ignore[no-any-return]  # what it takes and returns shows when it is called
