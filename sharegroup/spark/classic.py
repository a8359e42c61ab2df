"""Classic sessions: the JVM in this process, and all that reaches into it by py4j or the Spark context.

No other module knows of a JVM, but for `sink/classic_log`, which uses Delta's classes in it. With pyspark-client there
is none, and this module imports nothing then. What a session of Spark Connect has instead is in `connect`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.util import is_remote_only

from sharegroup.event_log import Event

logger = logging.getLogger(__name__)

if not is_remote_only():
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started

JVM_ERRORS: tuple[type[Exception], ...] = (PySparkException, OSError, *(() if is_remote_only() else (Py4JError,)))
"""Errors of calls into a JVM that has ended, or that raised one itself; some of them PySpark has translated."""

_POOL = "spark.scheduler.pool"
_OBSERVATION_POLL_S = 0.005
_LAST_COMMITTED_VERSION = "spark.databricks.delta.lastCommitVersionInSession"

_locked_files: dict[str, Any] = {}
"""Path → the JVM's file: it has the lock until the JVM ends, and a second one would end it by being closed."""
_locked_files_guard = threading.Lock()


# The JVM and its context.


def has_context() -> bool:
    """Return True if this process has an active Spark context."""
    return not is_remote_only() and SparkContext._active_spark_context is not None


def has_jvm() -> bool:
    """Return True if this process has a JVM."""
    return not is_remote_only() and SparkContext._gateway is not None


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process, or connect to the one of spark-submit; do nothing if there is one.

    Args:
        settings: settings of the session to come: those of the JVM take effect now.

    Raises:
        PySparkRuntimeError: it ends at its start.
    """
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def is_loadable(name: str) -> bool:
    """Return True if the JVM of this process finds a class."""
    jvm = SparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def first_loadable(names: Iterable[str]) -> str | None:
    """Return the first class that the JVM of this process finds."""
    return next((name for name in names if is_loadable(name)), None)


def is_running(spark: SparkSession) -> bool:
    """Return False if the session was stopped or its JVM has ended."""
    java_context = spark.sparkContext._jsc
    try:
        return java_context is not None and not java_context.sc().isStopped()
    except JVM_ERRORS:
        return False


def master(spark: SparkSession) -> str:
    """Return the address of the cluster's master."""
    return spark.sparkContext.master or "local"


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that run at once."""
    return spark.sparkContext.defaultParallelism


def launch_setting(spark: SparkSession, key: str) -> str | None:
    """Return a setting with which the context was started."""
    return spark.sparkContext.getConf().get(key)


def send_file(spark: SparkSession, path: str) -> None:
    """Send a zip file of modules to all executors."""
    spark.sparkContext.addPyFile(path)


def sent_files(spark: SparkSession) -> Iterable[str]:
    """Return the names of files of modules that executors have."""
    return spark.sparkContext._python_includes or ()


def add_to_python_path(spark: SparkSession, path: str) -> None:
    """Let Python processes beside the driver, and on executors, look for modules in a folder or file first."""
    environment = spark.sparkContext.environment
    environment["PYTHONPATH"] = os.pathsep.join([path, *filter(None, [environment.get("PYTHONPATH")])])


def set_environment(spark: SparkSession, name: str, value: str) -> None:
    """Give an environment variable to the Python processes of functions and formats that are registered from now on."""
    spark.sparkContext.environment[name] = value


def application_id(spark: SparkSession) -> str:
    """Return the id of the session's application."""
    return str(spark.sparkContext.applicationId)


def application_name(spark: SparkSession) -> str:
    """Return the name of the session's application."""
    return str(spark.sparkContext.appName)


def lock_file(spark: SparkSession, path: str, name: str) -> str | None:
    """Lock a file for this JVM alone until it ends, and write a name into it; the JVM may have the lock already.

    Args:
        name: one line in ASCII.

    Returns:
        None; if another process has the lock, the name in the file.

    Raises:
        Exception: one of JVM_ERRORS: the file cannot be written.
    """
    jvm = spark._jvm
    assert jvm is not None
    with _locked_files_guard:
        if path in _locked_files:
            return None
        file: Any = jvm.java.io.RandomAccessFile(path, "rw")
        if file.getChannel().tryLock() is None:
            holder = str(file.readLine() or "")
            file.close()
            return holder
        file.setLength(0)
        file.writeBytes(f"{name}\n")
        _locked_files[path] = file
        return None


def first_line(error: Exception) -> str:
    """Return what a JVM's error says, without its stack."""
    java_exception = getattr(error, "java_exception", None)
    text = str(error) if java_exception is None else str(java_exception.toString())
    return text.strip().partition("\n")[0]


# Sessions and frames.


def moved(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return a frame that was loaded in another session of the same context as one of this session.

    Its sources stay as the other session chose them. All else is this session's: what it may be joined with, and the
    settings under which it is planned and executed.
    """
    jvm = spark._jvm
    assert jvm is not None
    plan = frame._jdf.logicalPlan()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def cloned_session(spark: SparkSession) -> SparkSession:
    """Return a new session of the same context with the settings, views and functions of this one."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def last_committed_version(spark: SparkSession) -> int | None:
    """Return the version of the last commit to a Delta table in a session, of any thread; None if there was none."""
    version = spark.conf.get(_LAST_COMMITTED_VERSION, None)
    return int(version) if version else None


def forget_committed_version(spark: SparkSession) -> None:
    """Let `last_committed_version` return None until the next commit in a session; a copy has that of its original."""
    spark.conf.unset(_LAST_COMMITTED_VERSION)


def knows_format(spark: SparkSession, name: str) -> bool:
    """Return True if a Python data source was registered in the session."""
    return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))


def activate(spark: SparkSession) -> None:
    """Make a session the active one of the current thread, as Spark's own `createDataFrame` does."""
    jvm = spark._jvm
    assert jvm is not None
    SparkSession._activeSession = spark
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


@contextmanager
def activated(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one of the current thread for a while; then it is the one from before again."""
    jvm = spark._jvm
    assert jvm is not None
    sessions = SparkSession._get_j_spark_session_class(jvm)
    before, before_in_python = sessions.getActiveSession(), SparkSession._activeSession
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        SparkSession._activeSession = before_in_python
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def observed(observation: Observation, name: str, timeout_s: float) -> int | None:
    """Return a figure of the first action on an observed frame; None if the action reports none in time."""
    java_observation: Any = observation._jo
    assert java_observation is not None
    give_up_at_s = time.monotonic() + timeout_s
    while not java_observation.future().isCompleted():
        if time.monotonic() >= give_up_at_s:
            return None
        threading.Event().wait(_OBSERVATION_POLL_S)
    # Python's own getter fails with the empty row of an action that read nothing.
    figures = java_observation.getAsJava()
    return int(figures[name]) if figures.containsKey(name) else None


# The properties of a thread's jobs.


class ThreadProperties:
    """The local properties of the thread that creates it, such as a job group; other threads take them over."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._properties = self._context._jsc.sc().getLocalProperties().clone()

    def begin(self, pool: str, job_tags: Iterable[str]) -> None:
        """Give the current thread the properties, a scheduler pool, and tags of its jobs in addition.

        Tags of the context, since those of a session are known only to the thread that adds them, and leave out jobs
        on RDDs.
        """
        # A copy, since threads would change the properties of each other.
        self._context._jsc.sc().setLocalProperties(self._properties.clone())
        self._context.setLocalProperty(_POOL, pool)
        for job_tag in job_tags:
            self._context.addJobTag(job_tag)


def cancel_jobs(spark: SparkSession, job_tag: str) -> None:
    """Cancel the jobs with a tag."""
    spark.sparkContext.cancelJobsWithTag(job_tag)


def set_job_property(spark: SparkSession, key: str, value: object) -> None:
    """Give the jobs of the current thread a property, as JSON."""
    spark.sparkContext.setLocalProperty(key, json.dumps(value))


@contextmanager
def scheduler_pool(spark: SparkSession, name: str) -> Iterator[None]:
    """Start the Spark jobs of this thread in a FAIR pool."""
    context = spark.sparkContext
    before = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, name)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before or "default")


# Programs.


class _SignalHandler:
    """A `sun.misc.SignalHandler`."""

    def __init__(self, receive: Callable[[int], None]) -> None:
        self._receive = receive

    def handle(self, java_signal: Any) -> None:
        """Pass a signal on; the JVM calls this in a thread of its own."""
        self._receive(java_signal.getNumber())

    class Java:
        """The Java interface, for py4j."""

        implements = ("sun.misc.SignalHandler",)


def handle_jvm_signals(signals: Iterable[signal.Signals], receive: Callable[[int], None]) -> None:
    """Pass signals to the JVM, which runs, on to a function instead of ending the JVM."""
    gateway = SparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # PySpark does not type it
    java_signals = gateway.jvm.sun.misc.Signal
    for number in signals:
        java_signals.handle(java_signals(number.name.removeprefix("SIG")), _SignalHandler(receive))


def log_all_events(spark: SparkSession) -> None:
    """Let the JVM log its own events, too."""
    spark.sparkContext.setLogLevel("INFO")


def log_lost_updates(spark: SparkSession) -> None:
    """Log a line where PySpark prints a traceback: when its JVM ends while it sends the counts of a task."""

    def log(request: object, address: object) -> None:
        logger.debug(Event("task_counts_lost", reason=str(sys.exception())))

    # PySpark starts the server, and has no hook for its errors.
    spark.sparkContext._accumulatorServer.handle_error = log  # type: ignore[assignment, method-assign]
