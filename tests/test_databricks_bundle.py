"""The Databricks bundle: every file, entry point, flag and variable that it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from sharegroup.programs.main import program
from sharegroup.spark.session import SETTINGS

ROOT = Path(__file__).parents[1]
BUNDLE = ROOT / "conf" / "databricks.yml"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def bundle() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(BUNDLE.read_text(encoding="utf-8"))
    return parsed


@pytest.fixture(scope="module")
def tasks(bundle: dict[str, Any]) -> list[dict[str, Any]]:
    return [task for job in bundle["resources"]["jobs"].values() for task in job["tasks"]]


def test_every_path_exists(bundle: dict[str, Any], tasks: list[dict[str, Any]]) -> None:
    paths = [
        *bundle["sync"]["paths"],
        *(task["spark_python_task"]["python_file"] for task in tasks if "spark_python_task" in task),
        *(task["notebook_task"]["notebook_path"] for task in tasks if "notebook_task" in task),
        f"{bundle['artifacts']['wheel']['path']}/pyproject.toml",
    ]
    assert len(paths) >= 7
    assert [path for path in paths if not (BUNDLE.parent / path).exists()] == []


def test_every_configuration_file_is_synchronized(bundle: dict[str, Any]) -> None:
    names = re.findall(r"\$\{workspace\.file_path\}/(\S+)", BUNDLE.read_text(encoding="utf-8"))
    folders = {path.removeprefix("../") for path in bundle["sync"]["paths"]}
    assert names
    for name in names:
        assert (ROOT / name).exists()
        assert name.partition("/")[0] in folders


def test_every_task_has_the_wheel_that_is_built(bundle: dict[str, Any], tasks: list[dict[str, Any]]) -> None:
    folder = re.search(r"--wheel-dir (\S+) \.$", bundle["artifacts"]["wheel"]["build"])
    assert folder is not None
    wheel = f"../{folder[1]}/*.whl"
    environments = [each for job in serverless_jobs(bundle) for each in job["environments"]]
    assert [each["spec"]["dependencies"] for each in environments] == [[wheel]]
    for task in tasks:
        assert ("environment_key" in task) or task["libraries"] == [{"whl": wheel}]


def serverless_jobs(bundle: dict[str, Any]) -> list[dict[str, Any]]:
    return [job for job in bundle["resources"]["jobs"].values() if "environments" in job]


def cluster_jobs(bundle: dict[str, Any]) -> list[dict[str, Any]]:
    return [job for job in bundle["resources"]["jobs"].values() if "job_clusters" in job]


def test_every_task_runs_on_compute_of_its_job(bundle: dict[str, Any]) -> None:
    assert len(cluster_jobs(bundle)) + len(serverless_jobs(bundle)) == len(bundle["resources"]["jobs"])
    for job in cluster_jobs(bundle):
        clusters = {cluster["job_cluster_key"] for cluster in job["job_clusters"]}
        assert {task["job_cluster_key"] for task in job["tasks"]} == clusters
    for job in serverless_jobs(bundle):
        keys = {environment["environment_key"] for environment in job["environments"]}
        assert {task["environment_key"] for task in job["tasks"]} == keys


def test_a_serverless_job_ends_when_nothing_is_left(bundle: dict[str, Any]) -> None:
    parameters = [task["spark_python_task"]["parameters"] for job in serverless_jobs(bundle) for task in job["tasks"]]
    assert parameters
    assert all("--once" in each for each in parameters)


KAFKA_SETTINGS = {key: value for key, value in SETTINGS.items() if key.startswith("spark.kafka.")}


def test_every_cluster_has_the_settings_of_a_worker(bundle: dict[str, Any]) -> None:
    jobs = cluster_jobs(bundle)
    settings = [cluster["new_cluster"]["spark_conf"] for job in jobs for cluster in job["job_clusters"]]
    assert len(KAFKA_SETTINGS) == 4
    assert len(settings) == len(jobs)
    assert all(KAFKA_SETTINGS.items() <= each.items() for each in settings)


def test_the_operators_handbook_has_the_settings_of_a_worker() -> None:
    handbook = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^(spark\.kafka\.\S+) +(\S+)$", handbook, re.MULTILINE)) == KAFKA_SETTINGS


def test_every_variable_is_declared_and_used(bundle: dict[str, Any]) -> None:
    used = set(re.findall(r"\$\{var\.(\w+)\}", BUNDLE.read_text(encoding="utf-8")))
    assert used == {*bundle["variables"]}


def test_the_command_line_is_an_entry_point_of_the_wheel(tasks: list[dict[str, Any]]) -> None:
    of_wheel = [task["python_wheel_task"] for task in tasks if "python_wheel_task" in task]
    assert of_wheel
    for task in of_wheel:
        assert task["package_name"] == PROJECT["name"]
        assert task["entry_point"] in PROJECT["scripts"]
        # An option that a command does not have is refused before its help is shown.
        result = CliRunner().invoke(program, [*task["parameters"], "--help"])
        assert (result.exit_code, result.output.partition(":")[0]) == (0, "Usage")


def _job_flags(tasks: list[dict[str, Any]]) -> Iterator[tuple[str, set[str]]]:
    for task in tasks:
        if "spark_python_task" in task:
            parameters = task["spark_python_task"]["parameters"]
            yield task["spark_python_task"]["python_file"], {flag for flag in parameters if flag.startswith("--")}


@pytest.mark.slow
def test_every_flag_of_a_job_exists(tasks: list[dict[str, Any]]) -> None:
    for path, flags in _job_flags(tasks):
        command = [sys.executable, str(BUNDLE.parent / path), "--help"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
        assert flags
        assert flags <= set(re.findall(r"--[a-z-]+", text)), path


def test_nothing_shadows_the_platforms_spark() -> None:
    required = {re.split(r"[^\w-]", dependency)[0] for dependency in PROJECT["dependencies"]}
    assert required.isdisjoint({"pyspark", "delta-spark"})
    extra = PROJECT["optional-dependencies"]["spark"]
    assert {re.split(r"[^\w-]", dependency)[0] for dependency in extra} == {"pyspark", "delta-spark"}
