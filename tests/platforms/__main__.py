"""Runs the core of the suite on platforms, and writes what passed into docs/platforms.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

from tests.platforms.environment import (
    BUILD,
    ROOT,
    MissingError,
    configure_spark,
    connect_server,
    java_of,
    java_version,
    virtual_environment,
)
from tests.platforms.page import Row, write_row
from tests.platforms.platforms import PLATFORMS, Platform, platform

_LIBRARIES = ("confluent-kafka", "deltalake", "pyarrow", "pandas", "numpy", "pydantic", "click")
_VERSIONS = f"""
import platform
from importlib.metadata import PackageNotFoundError, version

def of(*names):
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "none"

print(of("pyspark", "pyspark-client"))
print(platform.python_version())
print(", ".join(f"{{name}} {{of(name)}}" for name in {_LIBRARIES!r}))
"""


def main() -> int:
    """Run the platforms that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.platforms", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in PLATFORMS))
    parser.add_argument("--pytest", default="", metavar="ARGUMENTS", help="more arguments of pytest; no row is written")
    options = parser.parse_args()
    try:
        chosen = [platform(name) for name in options.names] or list(PLATFORMS)
    except KeyError as unknown:
        parser.error(f"there is no platform {unknown}; there are {', '.join(each.name for each in PLATFORMS)}")
    failed = [each.name for each in chosen if not run(each, options.pytest.split())]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(platform: Platform, arguments: list[str]) -> bool:
    """Run the tests of a platform; return False if one failed, or the machine lacks what it needs."""
    started_s = time.monotonic()
    try:
        java = java_of(platform)
        environment = virtual_environment(platform)
    except MissingError as missing:
        print(f"{platform.name}: {missing}", file=sys.stderr)
        return False
    if platform.jar_sets:
        configure_spark(platform, environment)
    report = BUILD / f"{platform.name}.xml"
    python = environment / "bin" / "python"
    command = [str(python), "-m", "pytest", *platform.tests, "-m", platform.marks, f"--junitxml={report}"]
    # The processes of xdist have a main module for which PySpark's client wants a Spark beside it.
    command += [] if platform.has_server else ["--numprocesses", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    command += arguments
    with ExitStack() as stack:
        variables = _variables(environment, java)
        if platform.has_server:
            variables["SPARK_REMOTE"] = stack.enter_context(connect_server(BUILD / f"{platform.name}-server.log"))
        code = subprocess.run(command, cwd=ROOT, env=variables).returncode
    print(f"{platform.name}: exit code {code} after {time.monotonic() - started_s:.0f} s", flush=True)
    if code == 0 and not arguments:
        write_row(_row(platform, python, java, report))
    return code == 0


def _variables(environment: Path, java: Path | None) -> dict[str, str]:
    foreign = ("PYSPARK_", "SPARK_", "SHAREGROUP_", "VIRTUAL_ENV", "JAVA_HOME")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = [str(environment / "bin"), *([str(java / "bin")] if java else []), variables["PATH"]]
    variables |= {"PATH": os.pathsep.join(path), "PYTHONPATH": str(ROOT)}
    return {**variables, "JAVA_HOME": str(java)} if java else variables


def _row(platform: Platform, python: Path, java: Path | None, report: Path) -> Row:
    versions = subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True, check=True).stdout
    spark, python_version, libraries = versions.splitlines()
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failed, skipped = (
        sum(int(suite.attrib[name]) for suite in suites) for name in ("tests", "failures", "skipped")
    )
    return Row(
        platform=platform.name,
        spark=f"{spark} (client and server)" if platform.has_server else spark,
        python=python_version,
        java=str(java_version(java)) if java else "none",
        libraries=libraries,
        passed=total - failed - skipped,
        skipped=skipped,
    )


if __name__ == "__main__":
    sys.exit(main())
