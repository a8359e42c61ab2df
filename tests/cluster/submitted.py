"""Programs that a user submits to a cluster, from a folder of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from sharegroup.spark.jar_sets import configured_modules
from tests.kafka.site import KafkaSite
from tests.support import leash
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.jar_repository import new_repository
from tests.support.spark_cluster import JAR_FOLDER, SparkCluster, jars
from tests.support.wheel import ROOT

JARS = ("--jars", ",".join(map(str, jars("spark", "kafka"))))
CLASS_PATH = ("--driver-class-path", ":".join(f"{JAR_FOLDER / name}/*" for name in ("spark", "kafka")))
"""As `make setup` configures it: only the driver has the jars."""


class Submission:
    """A user's folder with configuration, jobs and handlers.

    Args:
        cluster: where the programs are submitted.
        wheel: this package.
        site: the processor whose members they are.
    """

    def __init__(self, folder: Path, cluster: SparkCluster, wheel: Path, site: KafkaSite) -> None:
        self.folder = folder
        self._cluster = cluster
        self._wheel = wheel
        self._running: list[Submitted] = []
        shutil.copytree(ROOT / "jobs", folder / "jobs")
        config = site.settings.processor
        (folder / "share.yaml").write_text(
            f"kafka.bootstrap.servers: {site.kafka.bootstrap_servers}\n"
            f"request.topic.name: {config.request_topic_name}\n"
            f"response.topic.name: {config.response_topic_name}\n"
            f"state.table.path: {os.path.relpath(site.state_path, folder)}\n"
            f"checkpoint.path: {folder / 'checkpoint'}\n"
        )

    def submit(self, *arguments: str, flags: tuple[str, ...] = JARS, **settings: str) -> Submitted:
        """Submit a program.

        Args:
            arguments: the program and its arguments.
            flags: of spark-submit, that give it the jars.
            settings: of Spark; `spark_task_maxFailures="1"` and so on.
        """
        pairs = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        output = self.folder / f"{len(self._running)}.out"
        package = ("--py-files", str(self._wheel))
        process = self._cluster.start(*package, *flags, *arguments, cwd=self.folder, output=output, settings=pairs)
        self._running.append(Submitted(process, output))
        return self._running[-1]

    def packages(self, *sets: str) -> tuple[str, ...]:
        """Flags for the jars of configurations of ivy.xml as packages of a Maven repository, which is a folder."""
        modules = configured_modules(sets)
        names = ",".join(module.coordinate for module in modules)
        # Without settings spark-submit asks Maven Central, whatever other repositories it has.
        ivy = new_repository(self.folder, modules)
        settings = (f"spark.jars.ivySettings={ivy}", f"spark.jars.ivy={self.folder / 'ivy'}")
        return ("--packages", names, *(flag for pair in settings for flag in ("--conf", pair)))

    def close(self) -> None:
        """Kill what runs."""
        for program in self._running:
            leash.end(program.process)


class Submitted:
    """A program in the cluster, whose driver is a process here."""

    def __init__(self, process: subprocess.Popen[Any], output_path: Path) -> None:
        self.process = process
        self._output_path = output_path

    @property
    def output(self) -> str:
        return self._output_path.read_text(errors="replace")

    def await_file(self, path: Path) -> str:
        """The text of a file that its tasks write; fail when the program ends before."""

        def text() -> str:
            assert path.exists() or self.process.poll() is None, self.output
            return path.read_text() if path.exists() else ""

        return eventually(text, f"{path} is there")

    def stop(self) -> int:
        """As an operator: let it drain; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code()

    def exit_code(self) -> int:
        return self.process.wait(DEADLINE_S)
