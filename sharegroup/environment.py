"""Checks of a program's environment before it starts: Python, Java and an exclusive folder.

A failed check raises `EnvironmentNotReadyError`, which names the missing part and the remedy.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sharegroup.errors import EnvironmentNotReadyError

_OLDEST_PYTHON = (3, 11)

_CLAIM_FILE = ".claim"

WITHOUT_SPARK = "Members in Python, the command line and `sharegroup processor --no-spark` run without Spark and Java."
"""The part of the remedy that names all that runs where Spark does not start."""


def check_python(running: tuple[int, int] = sys.version_info[:2]) -> None:
    """Check that Python is new enough.

    Args:
        running: major and minor version; that of this interpreter by default.

    Raises:
        EnvironmentNotReadyError: Python is older than 3.11.
    """
    if running < _OLDEST_PYTHON:
        raise EnvironmentNotReadyError(
            f"Python is too old: {sys.executable} is {_dotted(running)}, needed is {_dotted(_OLDEST_PYTHON)}.",
            f"Run with Python {_dotted(_OLDEST_PYTHON)} or newer.",
        )


def check_java(minimum: int = 17) -> str:
    """Return the path of the `java` that Spark starts: that of `JAVA_HOME`, else the first on `PATH`.

    Args:
        minimum: oldest supported major version; Spark 4 needs 17.

    Raises:
        EnvironmentNotReadyError: there is no such program, it does not run, or it is older.
    """
    remedy = f"Install Java {minimum} or newer, or set JAVA_HOME to one. {WITHOUT_SPARK}"
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=Path(java_home, "bin") if java_home else None)
    if java is None:
        searched = f"in JAVA_HOME={java_home}" if java_home else "on PATH"
        raise EnvironmentNotReadyError(f"Java is missing: no program bin/java {searched}.", remedy)
    version = _java_version(java)
    if version is None:
        raise EnvironmentNotReadyError(f"Java is missing: {java} does not run, or does not print its version.", remedy)
    if int(re.split(r"\D", version, maxsplit=1)[0]) < minimum:
        raise EnvironmentNotReadyError(f"Java is too old: {java} is {version}, needed is {minimum}.", remedy)
    return java


@contextmanager
def claim_folder(path: Path) -> Iterator[None]:
    """Lock a folder against other runs until the context, or this process, ends.

    Create the folder if it is missing. Its file `.claim` remains afterwards: only the lock on the file counts.

    Raises:
        EnvironmentNotReadyError: another run holds the folder, or it cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        claim = (path / _CLAIM_FILE).open("a+")
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"The folder {path} cannot be used: {error.strerror}.", "Make it writable, or name another folder."
        ) from error
    with claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            claim.seek(0)
            # The holder locks the file before it writes its process id.
            holder = claim.read().strip() or "unknown"
            raise EnvironmentNotReadyError(
                f"The folder {path} is in use by another run, process {holder}.",
                "Wait for it to end, stop it, or name another folder.",
            ) from error
        claim.truncate(0)
        claim.write(f"{os.getpid()}\n")
        claim.flush()
        yield


def _java_version(java: str) -> str | None:
    try:
        completed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    # Java may first print the environment variables that it uses, so the version is not always on the first line.
    version = re.search(r'version "(\d[^"]*)"', completed.stderr + completed.stdout)
    return version and version[1]


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
