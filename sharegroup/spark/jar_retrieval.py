"""Retrieves sets of jars into the user's cache, by the Ivy that PySpark brings.

The cache has a folder for each set, whose name changes with the jars. It is complete when it has all of them, retrieved
or put there by hand. Programs that start at the same time retrieve one after the other, and a set appears all at once:

1. Ivy retrieves into a new folder;
2. the new folder gets the name of the set's folder, if it is complete.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from sharegroup.errors import EnvironmentNotReadyError
from sharegroup.event_log import Event
from sharegroup.spark.jar_sets import IVY_FILE, JarSet
from sharegroup.spark.submit_settings import SubmitSettings

logger = logging.getLogger(__name__)

_RETRIEVED = re.compile(r"\s*\[SUCCESSFUL \] \S+#([^;]+);([^!]+)!")
_FAILURE = re.compile(
    r"\s*(?:::)?\s*(?:(\S+#\S+: .*)|(Server access error.*)|\[FAILED\s*\] (.*)|Exception in thread \"main\" (.*))"
)
_SYSTEM_PROPERTY = re.compile(r"-D(?:https?|javax\.net|ftp|socks)\S*")
"""The options of Java that decide how it connects."""


def cache_folder() -> Path:
    """Return the folder of all retrieved sets: in XDG_CACHE_HOME, else in the user's `.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sharegroup" / "jars"


def retrieved_jars(sets: Sequence[JarSet], spark_home: Path, java: str, submitted: SubmitSettings) -> list[Path]:
    """Return the jars of sets; retrieve what the cache lacks.

    Args:
        java: the program that runs Ivy.
        submitted: has `spark.jars.ivySettings` and the options of Java that name a proxy.

    Raises:
        EnvironmentNotReadyError: a set cannot be retrieved; names its jars and the folder to put them in.
    """
    folder = cache_folder()
    if not all(_is_complete(folder, jars) for jars in sets):
        ivy = _ivy_command(spark_home, java, submitted, folder)
        with _locked(folder):
            missing = [jars for jars in sets if not _is_complete(folder, jars)]
            failures = {jars: failure for jars in missing if (failure := _retrieve(jars, folder, ivy))}
        if failures:
            raise _not_retrieved(failures, folder)
    return [folder / jars.folder_name / module.jar for jars in sets for module in jars.modules]


def _is_complete(folder: Path, jars: JarSet) -> bool:
    return all((folder / jars.folder_name / module.jar).is_file() for module in jars.modules)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the cache; wait while another program holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"The folder {folder} for jars cannot be used: {error.strerror}.",
            "Make it writable, or set XDG_CACHE_HOME to a folder that is.",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _report(Event("waiting_for_jars", folder=folder, reason="another program retrieves them"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ivy_command(spark_home: Path, java: str, submitted: SubmitSettings, folder: Path) -> list[str]:
    programs = sorted((spark_home / "jars").glob("ivy-*.jar"))
    if not programs:
        raise EnvironmentNotReadyError(
            f"Jars are missing, and Spark in {spark_home} has no Ivy to retrieve them with.",
            "Give them to spark-submit with --jars or --packages.",
        )
    properties = [part for part in shlex.split(submitted.java_options) if _SYSTEM_PROPERTY.fullmatch(part)]
    settings = submitted.values.get("spark.jars.ivySettings")
    return [
        *(java, *_proxy_options(), *properties, "-jar", str(programs[-1])),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(folder / "ivy"), "-ivy", str(IVY_FILE)),
    ]


def _proxy_options() -> Iterator[str]:
    """Yield Java's options for the proxies of the environment variables, which Java does not read."""
    proxies = getproxies()
    for scheme in ("http", "https"):
        address = urlsplit(proxies.get(scheme, ""))
        if address.hostname:
            yield f"-D{scheme}.proxyHost={address.hostname}"
            yield f"-D{scheme}.proxyPort={address.port or 80}"
    if direct := proxies.get("no"):
        hosts = [f"*{host}" if host.startswith(".") else host for host in map(str.strip, direct.split(",")) if host]
        yield f"-Dhttp.nonProxyHosts={'|'.join(hosts)}"


def _retrieve(jars: JarSet, folder: Path, ivy: Sequence[str]) -> str:
    """Retrieve a set; return why it failed, "" for success."""
    total = len(jars.modules)
    _report(Event("retrieving_jars", set=jars.configuration, jars=total, folder=folder))
    with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as parent:
        new = Path(parent) / jars.folder_name
        # 1. Ivy retrieves into a new folder.
        pattern = str(new / "[artifact]-[revision].[ext]")
        failure = _run([*ivy, "-confs", jars.configuration, "-retrieve", pattern], total)
        # 2. The new folder gets the name of the set's folder, if it is complete.
        if not _is_complete(new.parent, jars):
            return failure
        # Somebody may have put some of the jars there.
        shutil.rmtree(folder / jars.folder_name, ignore_errors=True)
        new.rename(folder / jars.folder_name)
    return ""


def _not_retrieved(failures: Mapping[JarSet, str], folder: Path) -> EnvironmentNotReadyError:
    places = "; ".join(f"into {folder / jars.folder_name}: {jars.packages}" for jars in failures)
    reasons = "; ".join(f"{jars.configuration}: {failure}" for jars, failure in failures.items())
    return EnvironmentNotReadyError(
        f"Jars could not be retrieved from a Maven repository: {reasons}.",
        "Name a repository that is reachable with spark.jars.ivySettings, or a proxy with HTTPS_PROXY. Or put the jars "
        f"there by hand, {places}.",
    )


def _run(command: Sequence[str], total: int) -> str:
    """Run Ivy; report each jar, and return why it failed."""
    failures: list[str] = []
    count = 0
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if retrieved := _RETRIEVED.match(line):
                count += 1
                _report(Event("retrieved_jar", jar=f"{retrieved[1]}-{retrieved[2]}", count=count, of=total))
            elif failed := _FAILURE.match(line):
                failures.append(next(filter(None, failed.groups())).strip())
    return failures[0] if failures else f"Ivy ended with code {process.returncode}"


def _report(event: Event) -> None:
    """Log an event; write it to standard error where no program has set up the log."""
    if logger.hasHandlers() and logger.isEnabledFor(logging.INFO):
        logger.info(event)
    else:
        print(f"sharegroup: {event}", file=sys.stderr, flush=True)
