"""What a program needs around it before it starts: Python, Java, a folder of its own.

Each check ends in an `EnvironmentNotReadyError` that names what is missing and what to do about it.
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


def check_python(running: tuple[int, int] = sys.version_info[:2]) -> None:
    """Python is new enough.

    Args:
        running: major and minor version to judge; that of this interpreter unless given.

    Raises:
        EnvironmentNotReadyError: Python is older than 3.11.
    """
    if running < _OLDEST_PYTHON:
        raise EnvironmentNotReadyError(
            f"Python is too old: {sys.executable} is {_dotted(running)}, needed is {_dotted(_OLDEST_PYTHON)}.",
            f"Run with Python {_dotted(_OLDEST_PYTHON)} or newer.",
        )


def check_java(minimum: int = 17) -> str:
    """Path of the `java` that Spark will start: the one of `JAVA_HOME`, else the first on `PATH`.

    Args:
        minimum: oldest major version that will do; Spark 4 needs 17.

    Raises:
        EnvironmentNotReadyError: there is no such program, it does not run, or it is older.
    """
    remedy = f"Install Java {minimum} or newer, or set JAVA_HOME to one."
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=Path(java_home, "bin") if java_home else None)
    if java is None:
        place = f"in JAVA_HOME={java_home}" if java_home else "on PATH"
        raise EnvironmentNotReadyError(f"Java is missing: no program bin/java {place}.", remedy)
    version = _java_version(java)
    if version is None:
        raise EnvironmentNotReadyError(f"Java is missing: {java} does not run, or does not tell its version.", remedy)
    if int(re.split(r"\D", version, maxsplit=1)[0]) < minimum:
        raise EnvironmentNotReadyError(f"Java is too old: {java} is {version}, needed is {minimum}.", remedy)
    return java


@contextmanager
def claim_folder(path: Path) -> Iterator[None]:
    """Keeps other runs out of a folder while the context lasts, and for no longer than this process lives.

    The folder is made if need be. Its file `.claim` stays behind: the lock on it counts, not its presence.

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
            # Between its lock and its first write the holder has left no number yet.
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
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    # Java may first say which of its environment variables it has picked up, so this is not always the first line.
    found = re.search(r'version "(\d[^"]*)"', answer.stderr + answer.stdout)
    return found and found[1]


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
