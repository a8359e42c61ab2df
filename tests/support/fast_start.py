"""JVMs of tests: they live for seconds, so a compiler that optimises would only take time."""

from __future__ import annotations

import os

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
"""The options that `spark-submit` adds to those of its own JVM, and of the one that makes up its command line."""


def start_spark_fast() -> None:
    """Start every later JVM of Spark with these options, in whichever process."""
    os.environ.update(dict.fromkeys(_VARIABLES, JAVA_OPTIONS))


def is_fast_start(variable: str) -> bool:
    """Return True for an environment variable that `start_spark_fast` sets."""
    return variable in _VARIABLES
