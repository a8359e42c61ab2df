"""The process of a share group's source on the driver, driven as Spark's JVM drives it, and how it ends."""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import StructType

from sharegroup.client.admin import AdminClient
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.spark.features import HAS_READ_LIMITS
from sharegroup.spark.source.stream_reader import ShareGroupDataSource
from tests.client.processor_peer import ProcessorPeer
from tests.support import leash
from tests.support.eventually import DEADLINE_S, eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LIMIT = json.dumps({"_type": "ReadMaxRows", "max_rows": 10})


class SourceProcess:
    """Spark's end of the connection to the process of a source."""

    def __init__(self, source: ShareGroupDataSource, folder: Path) -> None:
        address = str(folder / "socket")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen()
            environment = {**os.environ, "PYTHON_WORKER_FACTORY_SOCK_PATH": address, "PYTHONPATH": str(ROOT)}
            self.process = leash.start([sys.executable, "-m", runner.__name__], env=environment)
            self._connection = server.accept()[0]
        self._file = self._connection.makefile("rwb")
        assert self._number() == self.process.pid
        self._say("{}.{}".format(*sys.version_info), str(folder), 0, pickle.dumps(source), StructType().json(), 1_000)
        assert self._number() == 0

    def latest_offset(self, start: dict[str, Any]) -> dict[str, Any]:
        self.ask(start)
        offset: dict[str, Any] = json.loads(self._file.read(self._number()))
        return offset

    def ask(self, start: dict[str, Any]) -> None:
        if HAS_READ_LIMITS:
            self._say(runner.LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID, json.dumps(start), LIMIT)
        else:
            self._say(runner.LATEST_OFFSET_FUNC_ID)

    def hang_up(self) -> None:
        self._file.close()
        self._connection.close()

    def _say(self, *parts: int | str | bytes) -> None:
        for part in parts:
            if isinstance(part, int):
                self._file.write(struct.pack("!i", part))
            else:
                data = part.encode() if isinstance(part, str) else part
                self._file.write(struct.pack("!i", len(data)) + data)
        self._file.flush()

    def _number(self) -> int:
        (number,) = struct.unpack("!i", self._file.read(4))
        return int(number)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "events.log") as log:
        log.create_topic("orders", 1)
        yield log


@pytest.fixture
def peer(log: LocalLog) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(log) as peer:
        AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
        yield peer


@pytest.fixture
def source(log: LocalLog, tmp_path: Path) -> Iterator[SourceProcess]:
    options = {"log.path": str(log.path), "group.id": "g", "subscribe": "orders"}
    source = SourceProcess(ShareGroupDataSource(CaseInsensitiveDict(options)), tmp_path)
    yield source
    source.process.kill()
    source.process.wait()


def terminated_twice(source: SourceProcess) -> None:
    source.process.terminate()
    source.process.terminate()


def hung_up_then_terminated(source: SourceProcess) -> None:
    """As Spark does it: the interrupt of its thread closes the connection."""
    source.hang_up()
    source.process.terminate()


def asked_and_hung_up(source: SourceProcess) -> None:
    source.ask(INITIAL)
    hung_up_then_terminated(source)


INITIAL = (
    ShareGroupDataSource(CaseInsensitiveDict({"log.path": "x", "group.id": "g", "subscribe": "orders"}))
    .streamReader(StructType())
    .initialOffset()
)


@pytest.mark.parametrize("end", [SourceProcess.hang_up, terminated_twice, hung_up_then_terminated, asked_and_hung_up])
def test_the_member_leaves_however_the_process_is_ended(
    log: LocalLog, peer: ProcessorPeer, source: SourceProcess, end: Callable[[SourceProcess], None]
) -> None:
    log.append("orders", 0, [NewRecord(None, b"value")] * 10)
    assert source.latest_offset(INITIAL)["number"] == 1
    end(source)
    source.process.wait(DEADLINE_S)
    eventually(lambda: peer.sent(ApiKey.SHARE_GROUP_HEARTBEAT)[-1].body["member_epoch"] == -1, "the member has left")
