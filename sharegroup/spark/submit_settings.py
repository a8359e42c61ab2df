"""The settings that spark-submit reads before it starts a JVM, read in Python.

PySpark starts a JVM by running spark-submit with the arguments of PYSPARK_SUBMIT_ARGS. Class path and Java's options
are fixed then, so what they lack must be known before. spark-submit takes a value from the first of these that has it:

1. PYSPARK_SUBMIT_ARGS, where of a repeated option the last one counts;
2. the settings of the application;
3. the file of `--properties-file`, else `spark-defaults.conf` in SPARK_CONF_DIR or in the folder `conf` of Spark.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = "PYSPARK_SUBMIT_ARGS"
_DEFAULT_ARGUMENTS = "pyspark-shell"
"""As in `pyspark.java_gateway.launch_gateway`."""

_KEYS = {
    "--driver-class-path": "spark.driver.extraClassPath",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--exclude-packages": "spark.jars.excludes",
    "--jars": "spark.jars",
    "--master": "spark.master",
    "--packages": "spark.jars.packages",
    "--repositories": "spark.jars.repositories",
}
"""Option → the setting that it is short for, of those that are read here."""

_SWITCHES = frozenset(
    ("--help", "-h", "--load-spark-defaults", "--supervise", "--usage-error", "--verbose", "-v", "--version")
)
"""Options without a value; see `SparkSubmitOptionParser`."""

_ENTRY = re.compile(r"\s*(?P<key>[^\s=:#!][^\s=:]*)\s*[\s=:]\s*(?P<value>.*?)\s*")


@dataclass(frozen=True)
class SubmitSettings:
    """The settings and arguments that spark-submit will read.

    Attributes:
        values: key → value of all sources.
        options: the part of PYSPARK_SUBMIT_ARGS before the program that it names.
        program: that program, with its arguments.
        conf_folder: the folder of `spark-defaults.conf` and of the log's configuration.
    """

    values: Mapping[str, str]
    options: tuple[str, ...]
    program: tuple[str, ...]
    conf_folder: Path

    @property
    def java_options(self) -> str:
        """All options for Java from settings and environment variables, as one text."""
        keys = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
        variables = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
        texts = [*(self.values.get(key, "") for key in keys), *(os.environ.get(name, "") for name in variables)]
        return " ".join(filter(None, texts))

    def listed(self, key: str) -> list[str]:
        """Return the entries of a comma-separated value."""
        return [entry for entry in map(str.strip, self.values.get(key, "").split(",")) if entry]

    @contextmanager
    def extended(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Let spark-submit read more settings within the block; they win over all others."""
        before = os.environ.get(_VARIABLE)
        pairs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        os.environ[_VARIABLE] = shlex.join([*self.options, *pairs, *self.program])
        try:
            yield
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before


def read_submit_settings(spark_home: Path, settings: Mapping[str, str]) -> SubmitSettings:
    """Read what spark-submit will read.

    Args:
        spark_home: the folder of Spark.
        settings: those of the application.
    """
    arguments = shlex.split(os.environ.get(_VARIABLE, _DEFAULT_ARGUMENTS))
    options, program = _divided(arguments)
    pairs = list(_pairs(options))
    submitted = dict(pair.partition("=")[::2] for option, pair in pairs if option in ("--conf", "-c"))
    submitted |= {_KEYS[option]: value for option, value in pairs if option in _KEYS}
    conf_folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    files = [Path(value) for option, value in pairs if option == "--properties-file"]
    defaults_file = conf_folder / "spark-defaults.conf"
    if "--load-spark-defaults" in options or not files:
        files.insert(0, defaults_file)
    defaults = {key: value for file in files for key, value in _properties(file)}
    return SubmitSettings({**defaults, **settings, **submitted}, options, program, conf_folder)


def _divided(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options, and the rest, which begins with the first argument that is none."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        is_whole = arguments[index] in _SWITCHES or "=" in arguments[index]
        index += 1 if is_whole else 2
    return tuple(arguments[:index]), tuple(arguments[index:])


def _pairs(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    remaining = iter(options)
    for option in remaining:
        name, equals, value = option.partition("=")
        if option not in _SWITCHES:
            yield (name, value) if equals else (option, next(remaining, ""))


def _properties(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings of a file of Java properties; nothing where it is not there."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if entry := _ENTRY.fullmatch(line):
            yield entry["key"], entry["value"]
