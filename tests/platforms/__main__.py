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
from tests.platforms.page import Row, Versions, versions_of, write_row
from tests.platforms.platforms import PLATFORMS, Platform, platform


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
    failed, left_out = [], []
    for each in chosen:
        try:
            if not run(each, options.pytest.split()):
                failed.append(each.name)
        except MissingError as missing:
            left_out.append(f"{each.name}: {missing}")
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    # A platform that is named must run; without names those that the machine has are enough.
    return 1 if failed or (options.names and left_out) else 0


def run(platform: Platform, arguments: list[str]) -> bool:
    """Run the tests of a platform; return False if one failed.

    Raises:
        MissingError: the machine lacks the platform's Python or Java.
    """
    started_s = time.monotonic()
    java = java_of(platform)
    environment = virtual_environment(platform)
    if platform.jar_sets:
        configure_spark(platform, environment)
    report = BUILD / f"{platform.name}.xml"
    python = environment / "bin" / "python"
    command = [str(python), "-m", "pytest", *platform.tests, "-m", platform.marks, f"--junitxml={report}"]
    # The processes of xdist have a main module for which PySpark's client wants a Spark beside it.
    if not (platform.has_server or platform.installs_itself):
        command += ["--numprocesses", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    command += arguments
    with ExitStack() as stack:
        variables = _variables(environment, None if platform.has_server else java)
        if platform.has_server:
            assert java is not None, platform
            server = connect_server(BUILD / f"{platform.name}-server.log", java)
            variables["SPARK_REMOTE"] = stack.enter_context(server)
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
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failed, skipped = (
        sum(int(suite.attrib[name]) for suite in suites) for name in ("tests", "failures", "skipped")
    )
    if platform.installs_itself:
        properties = {each.attrib["name"]: each.attrib["value"] for suite in suites for each in suite.iter("property")}
        versions = Versions(**properties)
    else:
        versions = versions_of(python)
    return Row(
        platform=platform.name,
        spark=f"{versions.spark} (client and server)" if platform.has_server else versions.spark,
        python=versions.python,
        java=str(java_version(java)) if java else "none",
        libraries=versions.libraries,
        passed=total - failed - skipped,
        skipped=skipped,
    )


if __name__ == "__main__":
    sys.exit(main())
