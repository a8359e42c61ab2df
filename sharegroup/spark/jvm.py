"""Starts the JVM of this process, with what it must know before it starts: jars, Java's options, the master.

1. A JVM that runs, that of spark-submit, and a session of Spark Connect stay as they are.
2. Else what spark-submit will read is read here: a jar that somebody brings counts, in any version, and so does each of
   Java's options.
3. What is missing is added: jars from the cache, which retrieves them once, and the defaults below.
4. The JVM starts, once.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home

from sharegroup.environment import WITHOUT_SPARK, check_java
from sharegroup.errors import EnvironmentNotReadyError
from sharegroup.spark import classic, cluster, connect
from sharegroup.spark.jar_retrieval import retrieved_jars
from sharegroup.spark.jar_sets import (
    DELTA,
    KAFKA,
    LOCAL_FILES,
    JarSet,
    jar_set,
    known_spark_versions,
    spark_minor_version,
)
from sharegroup.spark.submit_settings import SubmitSettings, read_submit_settings

DEFAULT_SETTINGS: Mapping[str, str] = {
    # Four slots let the processor's query run beside the workers' tasks, on any machine.
    "spark.master": "local[4]",
    # A shell's default is true, and Python counts as one.
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a JVM that nobody has set; spark-submit itself reads `conf/spark/spark-defaults.conf`."""

_DEFAULT_JAVA_OPTIONS: Mapping[str, str] = {
    # A stream that stops recurses deeply in a regular expression.
    "-Xss": "-Xss8m",
    # A fetch from Kafka is a megabyte: with the regions of a small heap it would be huge, and the collector would mark
    # all the time.
    "-XX:G1HeapRegionSize=": "-XX:G1HeapRegionSize=4m",
}
"""How an option begins → the option, where no other one begins so."""

_CLASS_PATH = "spark.driver.extraClassPath"
_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_LOG_OPTIONS = ("log4j2.configurationFile", "log4j.configurationFile", "log4j.configuration")
_LOG_FILE = "spark/log4j2.properties"
_SPARK_JAR = re.compile(r"spark-core_[\d.]+-(\d+\.\d+)\S*\.jar")


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process if it has none, or connect to the one of spark-submit; none for Spark Connect.

    Args:
        settings: those of the application.

    Raises:
        EnvironmentNotReadyError: Java is missing or too old; Spark or the Python of its workers has another version
            than this process; jars are missing, and cannot be retrieved; the JVM ends at its start.
    """
    # 1. Leave a JVM that runs as it is.
    if connect.is_wanted():
        return
    if classic.has_jvm() or "PYSPARK_GATEWAY_PORT" in os.environ:
        classic.launch_jvm(settings)
        return
    # 2. Read what spark-submit will read.
    java = check_java()
    spark_home = Path(_find_spark_home())
    _check_spark_version(spark_home)
    submitted = read_submit_settings(spark_home, settings)
    _check_python_version(submitted)
    # 3. Add what is missing.
    missing = list(_missing_sets(submitted, spark_home))
    jars = retrieved_jars(missing, spark_home, java, submitted)
    # 4. Start the JVM.
    with submitted.extended(_added(submitted, jars)):
        try:
            classic.launch_jvm(settings)
        except PySparkRuntimeError as error:
            raise EnvironmentNotReadyError(
                f"The JVM of Spark in {spark_home} ended at its start, with {java}; the lines before this one say why.",
                f"Check spark-defaults.conf in {submitted.conf_folder} and PYSPARK_SUBMIT_ARGS. {WITHOUT_SPARK}",
            ) from error


def _check_spark_version(spark_home: Path) -> None:
    """Check that this process can talk to the JVM of a folder of Spark, which SPARK_HOME may name."""
    of_python = f"PySpark of {sys.executable} is {pyspark.__version__}"
    remedy = f"Unset SPARK_HOME: PySpark brings a Spark of its own. {WITHOUT_SPARK}"
    if not (spark_home / "bin" / "spark-submit").is_file():
        raise EnvironmentNotReadyError(f"SPARK_HOME={spark_home} has no program bin/spark-submit; {of_python}.", remedy)
    versions = (match for jar in (spark_home / "jars").glob("spark-core_*") if (match := _SPARK_JAR.match(jar.name)))
    version = next((match[1] for match in versions), None)
    if version not in (None, spark_minor_version()):
        raise EnvironmentNotReadyError(
            f"SPARK_HOME={spark_home} is Spark {version}, and {of_python}: they do not fit together.",
            f"{remedy} To use that Spark: pip install 'pyspark=={version}.*'.",
        )


def _check_python_version(submitted: SubmitSettings) -> None:
    """Check that Python of Spark's workers has the version of this process, where tasks run on this machine."""
    python = submitted.values.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if python == sys.executable or cluster.is_cluster_master(submitted.values.get("spark.master", "local")):
        return
    own = "{}.{}".format(*sys.version_info)
    remedy = "Unset PYSPARK_PYTHON and spark.pyspark.python: then it is this program's."
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        version = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise EnvironmentNotReadyError(
            f"Python of Spark's workers, {python}, does not run: {error}.", remedy
        ) from error
    if version != own:
        raise EnvironmentNotReadyError(
            f"Python of Spark's workers, {python}, is {version}, and this program runs on {own}.",
            f"{remedy} {WITHOUT_SPARK}",
        )


def _missing_sets(submitted: SubmitSettings, spark_home: Path) -> Iterator[JarSet]:
    """Yield the sets of which nobody brings the first module.

    Raises:
        EnvironmentNotReadyError: `ivy.xml` has no such set for this Spark.
    """
    coordinates = [entry.split(":") for entry in submitted.listed("spark.jars.packages")]
    packages = [f"{coordinate[1]}-{coordinate[2]}.jar" for coordinate in coordinates if len(coordinate) == 3]
    jars = [Path(entry.removeprefix("file:")) for entry in submitted.listed("spark.jars")]
    for variable in (submitted.values.get(_CLASS_PATH, ""), os.environ.get("SPARK_DIST_CLASSPATH", "")):
        jars += cluster.jars_of(variable)
    of_spark = {jar.name for jar in (spark_home / "jars").glob("*.jar")}
    names = {*packages, *of_spark, *(jar.name for jar in jars)}
    others = [jar for jar in jars if jar.name not in of_spark]
    newest = known_spark_versions()[-1]
    for kind in (DELTA, LOCAL_FILES, KAFKA):
        # That of another version has the same names and classes.
        any_set = jar_set(kind, newest)
        assert any_set is not None
        if any(map(any_set.is_named, names)) or any(map(any_set.is_in, others)):
            continue
        missing = jar_set(kind)
        if missing is None:
            raise EnvironmentNotReadyError(
                f"PySpark is {pyspark.__version__}, for which this release knows no jars of {kind}; it knows those for "
                f"Spark {', '.join(known_spark_versions())}.",
                f"Bring them with spark.jars or spark.jars.packages, or: pip install 'pyspark=={newest}.*'. "
                f"{WITHOUT_SPARK}",
            )
        yield missing


def _added(submitted: SubmitSettings, jars: list[Path]) -> dict[str, str]:
    """Return the settings that spark-submit lacks."""
    added = {key: value for key, value in DEFAULT_SETTINGS.items() if key not in submitted.values}
    if jars:
        existing = submitted.values.get(_CLASS_PATH, "")
        added[_CLASS_PATH] = ":".join(filter(None, [existing, *map(str, jars)]))
    if options := list(_added_java_options(submitted)):
        added[_JAVA_OPTIONS] = " ".join([*filter(None, [submitted.values.get(_JAVA_OPTIONS)]), *options])
    return added


def _added_java_options(submitted: SubmitSettings) -> Iterator[str]:
    existing = submitted.java_options
    for start, option in _DEFAULT_JAVA_OPTIONS.items():
        if start not in existing:
            yield option
    has_file = any(submitted.conf_folder.glob("log4j2*"))
    if not has_file and not any(f"-D{name}=" in existing for name in _LOG_OPTIONS):
        yield shlex.quote(f"-Dlog4j2.configurationFile={cluster.package_file(_LOG_FILE)}")
