"""A standalone Spark cluster for tests: a master and two workers from PySpark's own jars, killed at the end.

Its programs get nothing that `make setup` configures: their settings are the flags of spark-submit.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from tests.support import leash
from tests.support.eventually import eventually
from tests.support.fast_start import JAVA_OPTIONS
from tests.support.kafka_broker import ROOT, free_ports

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
JAR_FOLDER = ROOT / "build" / "jars"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_SETTINGS = {
    # The machine of the tests has an address that containers cannot reach by its name.
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.defaultJavaOptions": "-Xss8m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    # One on each worker.
    "spark.cores.max": str(WORKERS),
}


def jars(*sets: str) -> list[Path]:
    """The jars of configurations of ivy.xml."""
    return sorted(jar for name in sets for jar in (JAR_FOLDER / name).glob("*.jar"))


class SparkCluster:
    """A master with two workers, each a process.

    Args:
        folder: for their configuration, their logs, and the folders of executors.
        python: the interpreter of drivers and executors.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self._python = python
        self._processes: list[subprocess.Popen[Any]] = []
        self._ports: dict[str, int] = {}

    @property
    def master(self) -> str:
        """The address for `--master`."""
        return f"spark://127.0.0.1:{self._ports['master']}"

    def environment(self) -> dict[str, str]:
        """The environment of a user of the cluster, who has Spark and an interpreter, but not this checkout."""
        foreign = ("PYTHON", "PYSPARK_", "SHAREGROUP_", "SPARK_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return {
            **environment,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
            "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
            "PYSPARK_PYTHON": str(self._python),
        }

    def start(self, *arguments: str, cwd: Path, output: Path, settings: Sequence[str] = ()) -> subprocess.Popen[Any]:
        """Start `spark-submit` with arguments, in client mode; its output goes to a file."""
        pairs = [*(f"{key}={value}" for key, value in _SETTINGS.items()), *settings]
        flags = [flag for pair in pairs for flag in ("--conf", pair)]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.master, *flags, *arguments]
        with output.open("wb") as file:
            return leash.start(command, cwd=cwd, env=self.environment(), stdout=file, stderr=file)

    def executors(self) -> list[int]:
        """The process ids of all executors."""
        sessions = {process.pid for process in self._processes}
        return sorted(pid for pid, session in _sessions().items() if session in sessions and _EXECUTOR in _command(pid))

    def kill_executor(self, pid: int) -> None:
        """End one as a power failure would."""
        assert pid in self.executors()
        os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        (self.folder / "conf").mkdir(parents=True)
        shutil.copy(ROOT / "sharegroup" / "spark" / "log4j2.properties", self.folder / "conf")
        self._ports = free_ports("master", "ui", *(f"ui-{number}" for number in range(WORKERS)))
        address = ("--host", "127.0.0.1", "--port", str(self._ports["master"]))
        try:
            self._daemon("master.Master", *address, "--webui-port", str(self._ports["ui"]))
            # A worker that finds no master asks again after ten seconds.
            eventually(lambda: self._worker_count() is not None, "the master responds")
            for number in range(WORKERS):
                size = ("--cores", "2", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}"))
                ui = ("--webui-port", str(self._ports[f"ui-{number}"]))
                self._daemon("worker.Worker", "--host", "127.0.0.1", *ui, *size, self.master)
            eventually(lambda: self._worker_count() == WORKERS, f"{WORKERS} workers have registered")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill its daemons and all executors."""
        for process in self._processes:
            leash.end(process)

    def _daemon(self, name: str, *arguments: str) -> None:
        daemon = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS}
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with (self.folder / "daemons.log").open("ab") as log:
            process = leash.start(
                command, cwd=self.folder, env={**self.environment(), **daemon}, stdout=log, stderr=log
            )
        self._processes.append(process)

    def _worker_count(self) -> int | None:
        """The number of registered workers; None while the master does not respond."""
        log = self.folder / "daemons.log"
        assert all(process.poll() is None for process in self._processes), log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ports['ui']}/json/", timeout=5) as response:
                return int(json.load(response)["aliveworkers"])
        except (OSError, ValueError):
            # Until all its pages are there, it responds with none.
            return None


def _sessions() -> dict[int, int]:
    sessions: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            sessions[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[3])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return sessions


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
