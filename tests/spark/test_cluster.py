"""Which masters have executors of their own, and what a session sends them; the rest is in tests/cluster."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from sharegroup.spark.cluster import is_cluster_master, jars_to_send, write_archive
from tests.support.wheel import ROOT


@pytest.mark.parametrize(
    ("master", "is_cluster"),
    [
        ("local", False),
        ("local[4]", False),
        ("local[*]", False),
        ("local-cluster[2,1,1024]", True),
        ("spark://master:7077", True),
        ("yarn", True),
        ("k8s://https://cluster:6443", True),
    ],
)
def test_masters(master: str, is_cluster: bool) -> None:
    assert is_cluster_master(master) is is_cluster


def test_jars_of_the_driver_are_sent_once_and_those_of_spark_are_not(tmp_path: Path) -> None:
    for name in ("delta.jar", "kafka.jar", "notes.txt"):
        (tmp_path / name).touch()
    class_path = f"{_find_spark_home()}/jars/*:{tmp_path}/*:{tmp_path / 'delta.jar'}:{tmp_path}"
    assert jars_to_send("", class_path) == f"{tmp_path / 'delta.jar'},{tmp_path / 'kafka.jar'}"
    sent = "file:///elsewhere/kafka.jar,file:///elsewhere/sink.jar"
    assert jars_to_send(sent, class_path) == f"{sent},{tmp_path / 'delta.jar'}"
    assert jars_to_send("", "") == ""


def test_an_installed_package_is_sent_whole(tmp_path: Path) -> None:
    archive = write_archive(ROOT, tmp_path / "sharegroup.zip")
    with zipfile.ZipFile(archive) as package:
        names = set(package.namelist())
    assert {"sharegroup/__init__.py", "sharegroup/spark/fair_pools.xml", "sharegroup/core/runs.py"} <= names
    assert not [name for name in names if "__pycache__" in name]
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import sharegroup; print(sharegroup.__file__)"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert output.stdout.strip() == f"{archive}/sharegroup/__init__.py"
    assert write_archive(archive, tmp_path / "copy.zip").read_bytes() == archive.read_bytes()
