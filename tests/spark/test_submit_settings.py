"""The settings that spark-submit will read: all its sources, their order, and the forms of its options."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sharegroup.spark.submit_settings import SubmitSettings, read_submit_settings

KEY = "spark.driver.extraClassPath"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Spark, and an environment without settings."""
    (tmp_path / "conf").mkdir()
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        # Set first, so that it is as before after the test, whatever the test does with it.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path


def write_defaults(folder: Path, text: str) -> None:
    (folder / "spark-defaults.conf").write_text(text, encoding="utf-8")


def read(home: Path, arguments: str = "pyspark-shell", **settings: str) -> SubmitSettings:
    os.environ["PYSPARK_SUBMIT_ARGS"] = arguments
    return read_submit_settings(home, {name.replace("_", "."): value for name, value in settings.items()})


def test_arguments_win_over_the_application_and_that_over_the_file(home: Path) -> None:
    write_defaults(home / "conf", "spark.a file\nspark.b file\nspark.c file\n")
    submitted = read(home, "--conf spark.a=first -c spark.a=last pyspark-shell", spark_a="own", spark_b="own")
    assert submitted.values == {"spark.a": "last", "spark.b": "own", "spark.c": "file"}


def test_a_properties_file_takes_the_part_of_the_defaults(home: Path) -> None:
    write_defaults(home / "conf", "spark.a default\n")
    other = home / "other.conf"
    other.write_text("spark.b other\n")
    assert read(home, f"--properties-file {other} pyspark-shell").values == {"spark.b": "other"}
    both = read(home, f"--load-spark-defaults --properties-file {other} pyspark-shell")
    assert both.values == {"spark.a": "default", "spark.b": "other"}


def test_the_folder_of_the_environment_has_the_file(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_defaults(home / "conf", "spark.a spark\n")
    folder = tmp_path_factory.mktemp("conf")
    write_defaults(folder, "spark.a environment\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    assert read(home).values == {"spark.a": "environment"}
    assert read(home).conf_folder == folder


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("spark.a b", "b"),
        ("  spark.a = b  ", "b"),
        ("spark.a: b", "b"),
        ("spark.a\tb c", "b c"),
        ("spark.a -Dx=y", "-Dx=y"),
        ("spark.a b,\\\n   c", "b,c"),
        ("# spark.a b", None),
        ("! spark.a b", None),
        ("", None),
    ],
)
def test_the_forms_of_a_line(home: Path, line: str, value: str | None) -> None:
    write_defaults(home / "conf", f"{line}\n")
    assert read(home).values.get("spark.a") == value


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ("--driver-class-path a.jar:b.jar pyspark-shell", KEY, "a.jar:b.jar"),
        ("--driver-class-path=a.jar pyspark-shell", KEY, "a.jar"),
        (
            "--conf 'spark.driver.extraJavaOptions=-Da=b -Dc' pyspark-shell",
            "spark.driver.extraJavaOptions",
            "-Da=b -Dc",
        ),
        ("--verbose --master local[2] pyspark-shell", "spark.master", "local[2]"),
        ("--name 'my program' --packages a:b:1 pyspark-shell", "spark.jars.packages", "a:b:1"),
        ("pyspark-shell --master local[2]", "spark.master", None),
    ],
)
def test_the_forms_of_an_option(home: Path, arguments: str, key: str, value: str | None) -> None:
    assert read(home, arguments).values.get(key) == value


def test_added_settings_stand_before_the_program_and_leave_again(home: Path) -> None:
    arguments = "--conf spark.a=1 pyspark-shell --flag"
    submitted = read(home, arguments)
    with submitted.extended({"spark.a": "2", "spark.b": "with blanks"}):
        inner = read_submit_settings(home, {})
        assert inner.values == {"spark.a": "2", "spark.b": "with blanks"}
        assert inner.program == ("pyspark-shell", "--flag")
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == arguments


def test_without_arguments_the_environment_stays_without(home: Path) -> None:
    with read_submit_settings(home, {}).extended({"spark.a": "1"}):
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--conf spark.a=1 pyspark-shell"
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_options_of_java_come_from_all_sources(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_defaults(home / "conf", "spark.driver.defaultJavaOptions -Da\n")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dc")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dd")
    submitted = read(home, "--driver-java-options -Db pyspark-shell")
    assert submitted.java_options.split() == ["-Da", "-Db", "-Dc", "-Dd"]
