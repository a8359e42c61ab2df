"""The platforms, and what is run on each."""

from __future__ import annotations

from dataclasses import dataclass

_MEMBERS = (
    "tests/test_notebooks.py",
    "tests/spark/source/test_query.py",
    "tests/spark/test_worker.py",
    "tests/spark/test_acquired_records.py",
    "tests/spark/test_processor_query.py",
    "tests/spark/test_audit_rows.py",
    "tests/spark/test_verify_by_spark.py",
    "tests/spark/test_live_audit.py",
    "tests/spark/test_local_log_source.py",
)
_CLASSIC = (
    *_MEMBERS,
    "tests/test_documents.py",
    "tests/spark/source/test_reader.py",
    "tests/spark/test_features.py",
    "tests/spark/test_session.py",
)
_REMOTE = (
    "tests/test_notebooks.py",
    # Others look into the function of foreachBatch, which runs beside the server.
    "tests/spark/source/test_query.py::test_a_query_writes_each_record_once_to_a_delta_table",
    "tests/spark/source/test_query.py::test_wrong_options_are_refused_when_the_source_is_loaded",
    "tests/spark/test_worker.py",
    "tests/spark/test_acquired_records.py",
    "tests/spark/test_processor_query.py",
    "tests/spark/test_audit_rows.py",
    "tests/spark/test_verify_by_spark.py",
    "tests/spark/test_live_audit.py",
    "tests/spark/test_local_log_source.py",
)
_CORE = "(core or not long)"
_WHEEL = ("tests/wheel/test_from_pip.py",)
_WITHOUT_SPARK = (
    "tests/actor",
    "tests/audit",
    "tests/cli",
    "tests/client",
    "tests/conformance",
    "tests/coordinator",
    "tests/logs",
    "tests/metrics",
    "tests/processor",
    "tests/protocol",
    # The generated schemas are those of the locked pydantic.
    "--ignore=tests/protocol/test_schemas.py",
    "tests/state",
    "tests/unit",
)


@dataclass(frozen=True)
class Platform:
    """One environment.

    Attributes:
        name: also the name of its requirements file.
        python: minor version of Python.
        java: major version of Java, that of the server where there is one; None for none.
        jar_sets: configurations of sharegroup/spark/ivy.xml; none where Spark is elsewhere.
        tests: files and folders.
        marks: the expression that selects tests.
        has_server: True if tests are clients of a Spark Connect server, which runs in `.venv`.
        installs_itself: True if tests run in `.venv`, and make the environments that they are about.
    """

    name: str
    python: str
    java: int | None
    jar_sets: tuple[str, ...]
    tests: tuple[str, ...]
    marks: str
    has_server: bool = False
    installs_itself: bool = False


PLATFORMS = (
    Platform("spark-4.0", "3.12", 17, ("delta-4.0", "files", "kafka-4.0"), _CLASSIC, f"not kafka and {_CORE}"),
    Platform("spark-4.1", "3.13", 17, ("delta-4.1", "files", "kafka-4.1"), _CLASSIC, f"not kafka and {_CORE}"),
    # Spark 4.2 is the only one that runs on Java 25.
    Platform("connect", "3.11", 25, (), _REMOTE, f"spark and not classic and not kafka and {_CORE}", has_server=True),
    Platform("lowest", "3.11", None, (), _WITHOUT_SPARK, "not spark and not kafka and not long and not browser"),
    Platform("wheel", "3.11", 17, (), _WHEEL, "", installs_itself=True),
)
"""Python 3.11 with the locked PySpark and Java 17 is what `make test` runs on."""


def platform(name: str) -> Platform:
    """Return a platform by its name.

    Raises:
        KeyError: there is none of that name.
    """
    return {each.name: each for each in PLATFORMS}[name]
