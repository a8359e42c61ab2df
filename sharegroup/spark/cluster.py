"""Equips the executors of a cluster, which are processes on other machines: with jars, and with this package.

With a local master all tasks run in the driver's JVM, beside its class path and its Python packages. On a cluster an
executor has Spark, a Python interpreter with the libraries that the cluster's administrator installed, and what the
application sends it. So a new session sends

1. the jars of the driver's class path that are no part of Spark (`jars_to_send`);
2. this package, in the driver's release (`send_package`): Spark puts a wheel of `--py-files` on no executor's path;

and then asks an executor for a class of the jars (`check_executors`), since without them every range would fail.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from sharegroup.config.table_location import absolute_address, location_of
from sharegroup.errors import ConfigurationError, EnvironmentNotReadyError
from sharegroup.event_log import Event
from sharegroup.spark import classic, connect

logger = logging.getLogger(__name__)

_PACKAGE = "sharegroup"
_NEEDED_MODULE = "sharegroup.spark.source.task_records"
"""It imports all libraries that tasks need."""

_resources = ExitStack()
atexit.register(_resources.close)


def is_cluster(spark: SparkSession) -> bool:
    """Return True if tasks run in processes of their own, mostly on other machines, and not in the driver's JVM.

    So does a session of Spark Connect, unless its server is on this machine.
    """
    if connect.is_connect(spark):
        return not connect.is_server_here(spark)
    return is_cluster_master(classic.master(spark))


def name_of(spark: SparkSession) -> str:
    """Return where the tasks of a session run, for messages."""
    return "the Spark Connect server" if connect.is_connect(spark) else classic.master(spark)


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that run at once."""
    return connect.parallelism(spark) if connect.is_connect(spark) else classic.parallelism(spark)


def is_cluster_master(master: str) -> bool:
    """As `is_cluster`, from the value of `spark.master`."""
    return master != "local" and not master.startswith("local[")


def package_file(name: str) -> Path:
    """Return the path of a file of this package; one inside a wheel or zip is copied out until the process ends."""
    return _resources.enter_context(as_file(files(_PACKAGE).joinpath(name)))


def jars_to_send(sent: str, driver_class_path: str) -> str:
    """Return the jars of an application, comma-separated: those that it sends already, and the driver's own.

    Args:
        sent: value of `spark.jars`, from --jars and --packages.
        driver_class_path: value of `spark.driver.extraClassPath`. What is in Spark's own folder is left out: each
            executor has it.
    """
    jars = [jar for jar in sent.split(",") if jar]
    names = {jar.rpartition("/")[2] for jar in jars}
    own = Path(_find_spark_home()).resolve() / "jars"
    for jar in jars_of(driver_class_path):
        if jar.name not in names and jar.resolve().parent != own:
            names.add(jar.name)
            jars.append(str(jar.absolute()))
    return ",".join(jars)


def send_package(spark: SparkSession) -> None:
    """Send this package to all executors, in the release that the driver runs; there it precedes an installed one."""
    container = Path(str(files(_PACKAGE))).parent
    if container.is_file():
        # Spark 4.2 looks for the files of an application in a wrong folder when it starts the process of a stream's
        # Python source, beside the driver; on executors there is no such path.
        classic.add_to_python_path(spark, str(container))
        if container.name in classic.sent_files(spark):
            return
    folder = Path(_resources.enter_context(tempfile.TemporaryDirectory(prefix="sharegroup-")))
    classic.send_file(spark, str(write_archive(container, folder / f"{_PACKAGE}.zip")))


def write_archive(container: Path, archive: Path) -> Path:
    """Write this package as a zip file, and return its path.

    Args:
        container: the folder with the package, or the wheel or zip file.
    """
    if container.is_file():
        # Spark leaves a wheel out of the paths of executors unless it is named as the zip file that it is.
        shutil.copyfile(container, archive)
        return archive
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted((container / _PACKAGE).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                package.write(path, path.relative_to(container))
    return archive


def check_executors(spark: SparkSession, class_names: Iterable[str]) -> None:
    """Check that executors can load what the driver can; with a local master there is nothing to check.

    The JVM of a server of Spark Connect is asked wherever it is: nobody has asked it before.

    Args:
        class_names: classes that tasks need.

    Raises:
        EnvironmentNotReadyError: an executor lacks a class.
    """
    if not (connect.is_connect(spark) or is_cluster(spark)):
        return
    for name in class_names:
        if not _executor_loads(spark, name):
            raise EnvironmentNotReadyError(
                f"The executors of {name_of(spark)} lack the jar with class {name}.",
                "Give it to spark-submit, or to the server of Spark Connect, with --jars or --packages; "
                "docs/cluster.md has the names.",
            )


def check_audit_tasks(spark: SparkSession, path: str, name: str) -> str:
    """Check that tasks can import this package, and see a folder that the driver sees; return its absolute path.

    Args:
        path: the folder, or an address of an object store, which is returned as it is.
        name: the folder's name in the error.

    Raises:
        EnvironmentNotReadyError: executors lack the package or its libraries, or the folder is on the disk of the
            driver's machine only.
    """
    folder = absolute_address(path)
    if not is_cluster(spark):
        return folder
    master = name_of(spark)
    if failure := _import_failure(spark, _NEEDED_MODULE):
        raise EnvironmentNotReadyError(
            f"The Python of the executors of {master} cannot run this package: {failure}.",
            "Install its libraries for the interpreter that PYSPARK_PYTHON names, on every node; docs/cluster.md shows "
            "how to send them.",
        )
    if location_of(path).folder is not None and not _all_see(spark, folder):
        raise EnvironmentNotReadyError(
            f"The {name} {folder} is on the disk of the driver's machine; executors of {master} do not see it.",
            "Put it where all of them see it, on a shared file system, or run this program with --master 'local[*]' on "
            "its machine.",
        )
    return folder


def embedded_log_refused(path: str) -> ConfigurationError:
    """Return the error of a member whose tasks run on other machines than the one with its log."""
    return ConfigurationError(
        f"The embedded log {path} is a file of one machine; tasks of this session run on the executors of a "
        "cluster, or beside a server of Spark Connect.",
        "Use Kafka as the log (kafka.bootstrap.servers), or run this member on the machine of the log, with --master "
        f"'local[*]'; a ShareConsumer there needs no Spark. If the server of Spark Connect is on that machine, set "
        f"{connect.LOCAL_SERVER}=true in the session.",
    )


def jars_of(class_path: str) -> Iterator[Path]:
    """Yield the jars of a class path; an entry `folder/*` has those of the folder."""
    for entry in filter(None, class_path.split(":")):
        path = Path(entry)
        yield from sorted(path.parent.glob("*.jar")) if path.name == "*" else [path] if path.suffix == ".jar" else []


def _executor_loads(spark: SparkSession, class_name: str) -> bool:
    """Return False if a task does not find a class."""
    loads = f"reflect('org.apache.spark.util.Utils', 'classIsLoadable', '{class_name}')"
    try:
        # A task computes it, since it is not deterministic for Spark.
        (row,) = spark.range(0, 1, 1, 1).selectExpr(loads, "id").collect()
    except PySparkException as error:
        # A platform may forbid it; what is missing then is seen by the first range.
        logger.info(Event("executors_not_checked", reason=connect.first_line(error)))
        return True
    return bool(row[0] == "true")


def _import_failure(spark: SparkSession, module: str) -> str:
    """Return why a task cannot import a module; empty if it can."""

    def attempt(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark pickles it as it is, since executors may lack this package.
        import importlib

        import pyarrow

        failure = ""
        try:
            importlib.import_module(module)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"failure": [failure] * batch.num_rows})

    try:
        (row,) = spark.range(0, 1, 1, 1).mapInArrow(attempt, "failure string").collect()
    except classic.JVM_ERRORS as error:
        return connect.first_line(error)
    return str(row.failure)


def _all_see(spark: SparkSession, folder: str) -> bool:
    """Return False if a task does not see a folder; there are as many tasks as cores."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from os.path import isdir

        import pyarrow

        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"is_there": [isdir(folder)] * batch.num_rows})

    count = parallelism(spark)
    rows = spark.range(0, count, 1, count).mapInArrow(check, "is_there boolean").collect()
    return all(row.is_there for row in rows)
