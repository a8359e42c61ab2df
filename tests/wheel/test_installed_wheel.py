"""The wheel has everything that the programs need: they run from it, away from the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import leash
from tests.support.eventually import DEADLINE_S
from tests.support.wheel import build_wheel, install, new_environment, packages_of

pytestmark = pytest.mark.long("builds the wheel and installs it in an environment of its own")

ROOT = Path(__file__).resolve().parents[2]

CONFIG = """
log.path: log.db
state.table.path: state
checkpoint.path: checkpoint
groups:
  orders:
    share.auto.offset.reset: earliest
"""

HOST_WITHOUT_SPARK = """
import threading
from pathlib import Path

import sharegroup
from sharegroup.config.loader import load_settings
from sharegroup.processor.processor import Processor

processor = Processor(load_settings(Path("share.yaml"), {}))
processor.start()
stop = threading.Event()
thread = threading.Thread(target=processor.run, args=[stop.is_set])
thread.start()
config = {"log.path": "log.db", "group.id": "orders", "max.poll.records": 2, "share.acquire.mode": "record_limit"}
with sharegroup.ShareConsumer(config) as consumer:
    consumer.subscribe(["orders"])
    while not (messages := consumer.poll(timeout=1)):
        pass
    print([message.value().decode() for message in messages])
    consumer.commit_sync()
stop.set()
processor.wake()
thread.join()
processor.stop()
print(sharegroup.__file__)
"""

SPARK_HOST_AND_WORKER = """
import sys
from pathlib import Path

from sharegroup import load_settings
from sharegroup.spark import ProcessorQuery, build_session, process


def handle(records):
    print([bytes(row.value).decode() for row in records.orderBy("offset").collect()])


spark = build_session("wheel")
processor = ProcessorQuery(spark, load_settings(Path("share.yaml"), {}))
processor.start()
options = {"log.path": "log.db", "group.id": "orders", "topics": "orders"}
process(spark, options, handle, once_timeout_s=float(sys.argv[1]))
processor.stop()
spark.stop()
"""


class Installation:
    """An environment with the wheel, beside the locked packages but without the checkout.

    Attributes:
        folder: the folder of the environment, in which its programs run, too.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        python = new_environment(folder)
        self.packages = packages_of(python)
        install(python, wheel)

    def run(self, program: str, *arguments: str) -> str:
        """Return the output of a Python program."""
        path = self.folder / "program.py"
        path.write_text(program, encoding="utf-8")
        return self._output(str(path), *arguments)

    def cli(self, *arguments: str) -> str:
        """Return the output of the command line."""
        return self._output(str(self.folder / "bin" / "sharegroup"), *arguments)

    def _output(self, *arguments: str) -> str:
        hidden = ("PYTHON", "PYSPARK_", "SHAREGROUP_", "SPARK_HOME")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        result = leash.run(
            [str(self.folder / "bin" / "python"), *arguments],
            timeout_s=DEADLINE_S,
            cwd=self.folder,
            env={**environment, "PYSPARK_PYTHON": str(self.folder / "bin" / "python")},
        )
        assert result.returncode == 0, result.stderr
        return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installation:
    return Installation(tmp_path_factory.mktemp("installation"), wheel)


@pytest.mark.slow
def test_every_file_of_the_package_is_installed(installation: Installation) -> None:
    assert _files(installation.packages / "sharegroup") == _files(ROOT / "sharegroup")


@pytest.mark.slow
@pytest.mark.spark
def test_the_programs_run_from_the_wheel(installation: Installation) -> None:
    (installation.folder / "share.yaml").write_text(CONFIG, encoding="utf-8")
    (installation.folder / "orders.txt").write_text("lamp\nchair\ntable\n", encoding="utf-8")
    installation.cli("topics", "create", "--config", "share.yaml", "--topic", "orders")
    installation.cli("topics", "produce", "--config", "share.yaml", "--topic", "orders", "--file", "orders.txt")

    values, origin = installation.run(HOST_WITHOUT_SPARK).splitlines()
    assert values == "['lamp', 'chair']"
    assert Path(origin).is_relative_to(installation.packages)
    assert installation.run(SPARK_HOST_AND_WORKER, str(DEADLINE_S)).splitlines() == ["['table']"]

    assert "0 findings" in installation.cli("audit", "verify", "--config", "share.yaml")


def _files(package: Path) -> set[str]:
    return {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
