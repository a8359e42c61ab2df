"""The start of a JVM: with the jars and options that nobody set, and not at all where it could not work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.find_spark_home import _find_spark_home

from sharegroup.spark.jar_sets import configured_modules
from tests.support import leash
from tests.support.eventually import DEADLINE_S
from tests.support.fast_start import is_fast_start
from tests.support.jar_repository import ROOT, new_repository

SHOW_SETTINGS = """
import json, sys
from sharegroup.spark import build_session

spark = build_session("jvm", json.loads(sys.argv[1]))
conf = spark.sparkContext.getConf()
keys = ("spark.master", "spark.driver.extraClassPath", "spark.ui.showConsoleProgress")
shown = {key: conf.get(key, "") for key in keys}
runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
shown["options"] = list(runtime.getInputArguments())
spark.range(3).write.format("delta").save("table")
shown["rows"] = spark.read.format("delta").load("table").count()
print(json.dumps(shown))
"""

ONLY_START = """
from sharegroup.errors import ShareGroupError
from sharegroup.spark.jvm import start_jvm

try:
    start_jvm({})
except ShareGroupError as error:
    print(f"{type(error).__name__}: {error}")
"""


class Machine:
    """A home, a working folder and an environment without any setting of Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "conf").mkdir()
        foreign = ("PYTHON", "PYSPARK_", "SHAREGROUP_", "SPARK_", "XDG_")
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(foreign) or is_fast_start(name)
        }
        self.environment = {
            **kept,
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            # Beside PySpark there is a file of `make setup`.
            "SPARK_CONF_DIR": str(folder / "conf"),
        }

    def run(self, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return leash.run(
            [sys.executable, "-c", program, *arguments],
            timeout_s=DEADLINE_S,
            cwd=self.folder,
            env={**self.environment, **variables},
        )

    def settings(self, own: Mapping[str, str], **variables: str) -> Any:
        ended = self.run(SHOW_SETTINGS, json.dumps(own), **variables)
        assert ended.returncode == 0, ended.stderr
        # spark-submit says which settings of Ivy it has read.
        return json.loads(ended.stdout.splitlines()[-1])

    def failure(self, **variables: str) -> str:
        return self.run(ONLY_START, **variables).stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.long("programs with JVMs of their own")
@pytest.mark.spark
@pytest.mark.slow
def test_a_jvm_gets_what_nobody_set_and_the_users_options_win(machine: Machine) -> None:
    repository = new_repository(machine.folder, configured_modules(["spark", "kafka"]))
    own = {"spark.jars.ivySettings": str(repository)}
    shown = machine.settings(own)
    assert shown["rows"] == 3
    assert shown["spark.master"] == "local[4]"
    assert shown["spark.ui.showConsoleProgress"] == "false"
    cache = machine.folder / ".cache" / "sharegroup" / "jars"
    jars = [Path(entry) for entry in shown["spark.driver.extraClassPath"].split(":")]
    assert {jar.name for jar in jars} == {module.jar for module in configured_modules(["spark", "kafka"])}
    assert all(jar.is_relative_to(cache) for jar in jars)
    for option in ("-Xss8m", "-XX:G1HeapRegionSize=4m"):
        assert option in shown["options"]
    assert any(option.startswith("-Dlog4j2.configurationFile=") for option in shown["options"])

    # The user's jars, master and options, from three sources.
    delta = [jar for jar in jars if jar.parent.name.startswith("delta-")]
    (machine.folder / "conf" / "spark-defaults.conf").write_text(
        f"spark.driver.extraClassPath {':'.join(map(str, delta))}\nspark.driver.extraJavaOptions -Xss16m\n"
    )
    (machine.folder / "conf" / "log4j2.properties").write_text("rootLogger.level = error\n")
    (machine.folder / "table").rename(machine.folder / "earlier")
    nowhere = {"spark.ui.showConsoleProgress": "true"}
    shown = machine.settings(nowhere, PYSPARK_SUBMIT_ARGS="--master local[2] pyspark-shell")
    assert shown["rows"] == 3
    assert shown["spark.master"] == "local[2]"
    assert shown["spark.ui.showConsoleProgress"] == "true"
    names = [Path(entry).name for entry in shown["spark.driver.extraClassPath"].split(":")]
    assert names[: len(delta)] == [jar.name for jar in delta]
    assert len(names) == len(set(names)) == len(jars)
    assert [option for option in shown["options"] if option.startswith("-Xss")] == ["-Xss16m"]
    assert not any(option.startswith("-Dlog4j2.configurationFile=") for option in shown["options"])


@pytest.mark.slow
def test_a_spark_of_another_version_is_named(machine: Machine) -> None:
    spark = machine.folder / "spark-3.5"
    for name in ("bin", "jars"):
        (spark / name).mkdir(parents=True)
    (spark / "bin" / "spark-submit").write_text("")
    (spark / "jars" / "spark-core_2.12-3.5.1.jar").write_text("")
    failure = machine.failure(SPARK_HOME=str(spark))
    assert failure.startswith(f"EnvironmentNotReadyError: SPARK_HOME={spark} is Spark 3.5, and PySpark of ")
    assert f" is {pyspark.__version__}: they do not fit together." in failure
    assert "Unset SPARK_HOME" in failure
    assert "run without Spark and Java" in failure
    (spark / "bin" / "spark-submit").unlink()
    assert "has no program bin/spark-submit" in machine.failure(SPARK_HOME=str(spark))


@pytest.mark.slow
def test_a_python_of_another_version_is_named(machine: Machine) -> None:
    python = machine.folder / "python3.9"
    python.write_text("#!/bin/sh\necho 3.9\n")
    python.chmod(0o755)
    failure = machine.failure(PYSPARK_PYTHON=str(python))
    own = "{}.{}".format(*sys.version_info)
    expected = f"Python of Spark's workers, {python}, is 3.9, and this program runs on {own}."
    assert failure.startswith(f"EnvironmentNotReadyError: {expected}")
    assert "Unset PYSPARK_PYTHON" in failure


@pytest.mark.slow
def test_a_missing_java_is_named_with_what_runs_without_it(machine: Machine) -> None:
    failure = machine.failure(JAVA_HOME=str(machine.folder))
    expected = f"Java is missing: no program bin/java in JAVA_HOME={machine.folder}"
    assert failure.startswith(f"EnvironmentNotReadyError: {expected}")
    assert "run without Spark and Java" in failure


@pytest.mark.slow
def test_jars_that_are_nowhere_stop_the_start(machine: Machine) -> None:
    repository = new_repository(machine.folder, [])
    arguments = f"--conf spark.jars.ivySettings={repository} pyspark-shell"
    failure = machine.failure(PYSPARK_SUBMIT_ARGS=arguments)
    assert failure.startswith("EnvironmentNotReadyError: Jars could not be retrieved")
    assert "io.delta:delta-spark" in failure
    assert str(machine.folder / ".cache" / "sharegroup" / "jars") in failure


@pytest.mark.slow
def test_a_jvm_that_ends_at_its_start_is_an_error_of_the_environment(machine: Machine) -> None:
    class_path = ":".join(f"{ROOT}/build/jars/{name}/*" for name in ("spark", "kafka"))
    arguments = f"--driver-class-path '{class_path}' --driver-memory little pyspark-shell"
    failure = machine.failure(PYSPARK_SUBMIT_ARGS=arguments)
    assert failure.startswith(f"EnvironmentNotReadyError: The JVM of Spark in {_find_spark_home()} ended at its start")
    assert "PYSPARK_SUBMIT_ARGS" in failure
    # What is on the class path already is retrieved from nowhere.
    assert not (machine.folder / ".cache").exists()


@pytest.mark.slow
def test_a_jar_of_another_spark_is_left_to_its_user(machine: Machine) -> None:
    arguments = (
        "--packages io.delta:delta-spark_2.13:4.0.0,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 "
        f"--conf spark.jars.ivySettings={new_repository(machine.folder, [])} pyspark-shell"
    )
    failure = machine.failure(PYSPARK_SUBMIT_ARGS=arguments)
    assert "could not be retrieved from a Maven repository: files: com.globalmentor#" in failure
    assert "delta-" not in failure
    assert "kafka-" not in failure


@pytest.mark.long("a program with a JVM of its own")
@pytest.mark.spark
@pytest.mark.slow
def test_a_jvm_of_spark_submit_stays_as_it_is(machine: Machine) -> None:
    program = machine.folder / "program.py"
    program.write_text(
        "from sharegroup.errors import EnvironmentNotReadyError\n"
        "from sharegroup.spark import build_session\n"
        "try:\n"
        "    build_session('submitted')\n"
        "except EnvironmentNotReadyError as error:\n"
        "    print(error)\n"
    )
    submit = Path(_find_spark_home()) / "bin" / "spark-submit"
    environment = {**machine.environment, "PYSPARK_PYTHON": sys.executable}
    ended = leash.run([str(submit), str(program)], timeout_s=DEADLINE_S, cwd=machine.folder, env=environment)
    assert "io.delta.sql.DeltaSparkSessionExtension is not on the driver's class path" in ended.stdout
    assert "--packages io.delta:delta-spark" in ended.stdout
    assert "make setup" not in ended.stdout
    assert not (machine.folder / ".cache").exists()
