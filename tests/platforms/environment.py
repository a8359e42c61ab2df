"""Equipment of a platform: its Python, its packages, its jars, its Java, and a Spark Connect server."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.platforms.platforms import Platform
from tests.support import leash
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "platforms"
REQUIREMENTS = Path(__file__).parent / "requirements"
_BUILD_REQUIREMENTS = ROOT / "requirements-build.txt"
_OWN_JAVA_OPTIONS = ("-XX:SharedArchiveFile",)
"""Options of conf/spark that fit the jars and the Java of `.venv` only."""


class MissingError(Exception):
    """The machine lacks something that a platform needs; the text says what."""


def python_of(platform: Platform) -> Path:
    """Return the interpreter of a platform's version, of the path or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{platform.python}")
    candidates = [*([on_path] if on_path else []), *map(str, sorted(pyenv.glob(f"{platform.python}.*/bin/python")))]
    for candidate in candidates:
        program = "import sys; print('%d.%d' % sys.version_info[:2])"
        ended = subprocess.run([candidate, "-c", program], capture_output=True, text=True)
        if ended.stdout.strip() == platform.python:
            return Path(candidate)
    raise MissingError(f"Python {platform.python} is neither on the path nor one of pyenv's.")


def java_of(platform: Platform) -> Path | None:
    """Return the home of a platform's Java; None if it needs none, or uses the one of the environment."""
    if platform.java is None:
        return None
    homes = [Path(home) for home in (os.environ.get(f"JAVA_{platform.java}_HOME"), os.environ.get("JAVA_HOME")) if home]
    homes += sorted(Path("/usr/lib/jvm").glob(f"*{platform.java}*"))
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parents[1])
    for home in homes:
        if java_version(home) == platform.java:
            return home
    raise MissingError(f"Java {platform.java} is not there: set JAVA_{platform.java}_HOME.")


def java_version(home: Path) -> int | None:
    """Return the major version of a Java; None where there is none."""
    java = home / "bin" / "java"
    if not java.exists():
        return None
    text = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    match = re.search(r'version "(\d+)', text)
    return int(match[1]) if match else None


def virtual_environment(platform: Platform) -> Path:
    """Build the virtual environment of a platform from its requirements, unless it is there; return its folder."""
    folder = BUILD / platform.name
    requirements = REQUIREMENTS / f"{platform.name}.txt"
    stamp = folder / ".requirements"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return folder
    print(f"Installing the packages of {platform.name} into {folder}", flush=True)
    subprocess.run([python_of(platform), "-m", "venv", "--clear", str(folder)], check=True)
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "--require-hashes"]
    subprocess.run([*install, "-r", str(_BUILD_REQUIREMENTS)], check=True)
    subprocess.run([*install, "--no-build-isolation", "-r", str(requirements)], check=True)
    stamp.write_text(requirements.read_text())
    return folder


def configure_spark(platform: Platform, environment: Path) -> None:
    """Retrieve a platform's jars, and write the settings that `make setup` writes for `.venv`."""
    (spark_home,) = environment.glob("lib/python*/site-packages/pyspark")
    class_path = [str(spark_home / "jars" / "*"), *(str(_jars(name) / "*") for name in platform.jar_sets)]
    lines = []
    for line in (ROOT / "conf" / "spark" / "spark-defaults.conf").read_text().splitlines():
        if line.startswith("spark.driver.extraClassPath"):
            line = f"spark.driver.extraClassPath {':'.join(class_path)}"
        lines.append(" ".join(word for word in line.split(" ") if not word.startswith(_OWN_JAVA_OPTIONS)))
    conf = spark_home / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    shutil.copy(ROOT / "sharegroup" / "spark" / "log4j2.properties", conf)


def _jars(name: str) -> Path:
    subprocess.run(["make", "--no-print-directory", "--quiet", f"build/jars/{name}/.retrieved"], cwd=ROOT, check=True)
    return ROOT / "build" / "jars" / name


@contextmanager
def connect_server(log: Path) -> Iterator[str]:
    """Run a Spark Connect server of this Python's PySpark for a while; yield its address.

    It is on this machine, and its tasks import this package from the checkout.
    """
    port = _free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.sharegroup.local.server": "true",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
    }
    flags = [flag for key, value in settings.items() for flag in ("--conf", f"{key}={value}")]
    program = [str(Path(sys.executable).parent / "spark-submit"), *flags]
    program += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with log.open("wb") as output:
        server = leash.start(program, cwd=log.parent, env=environment, stdout=output, stderr=output)
    try:

        def is_listening() -> bool:
            assert server.poll() is None, log.read_text(errors="replace")
            with closing(socket.socket()) as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        eventually(is_listening, "the Spark Connect server listens")
        yield f"sc://127.0.0.1:{port}"
    finally:
        leash.end(server)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
