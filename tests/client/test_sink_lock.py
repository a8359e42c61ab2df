"""On a local disk a table is written by processes with delta-rs, or by one Spark application, never by both."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.sink_lock import SharedSinkLock, sink_lock_path
from sharegroup.errors import SinkError
from tests.support import leash

_HOLD = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, int(sys.argv[2]))
if len(sys.argv) > 3:
    os.pwrite(descriptor, sys.argv[3].encode(), 0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "sink").mkdir()
    return tmp_path / "sink"


@contextmanager
def other_process(table: Path, kind: int, content: str = "") -> Iterator[None]:
    """Another program has the lock, as a JVM's FileLock would."""
    arguments = [str(sink_lock_path(table)), str(kind), *([content] if content else [])]
    command = [sys.executable, "-c", _HOLD, *arguments]
    process = leash.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    try:
        yield
    finally:
        leash.end(process)


def is_free(table: Path) -> bool:
    """Return True if another process could take the lock alone."""
    command = [sys.executable, "-c", "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), int(sys.argv[2]))"]
    arguments = [str(sink_lock_path(table)), str(fcntl.LOCK_EX | fcntl.LOCK_NB)]
    return subprocess.run([*command, *arguments], stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_processes_with_delta_rs_share_it(table: Path) -> None:
    with other_process(table, fcntl.LOCK_SH):
        SharedSinkLock(table).close()


def test_a_spark_application_is_named_and_keeps_them_out(table: Path) -> None:
    with (
        other_process(table, fcntl.LOCK_EX, "Spark application app-7"),
        pytest.raises(SinkError, match="Spark application app-7 writes to the table"),
    ):
        SharedSinkLock(table)
    SharedSinkLock(table).close()


def test_it_lasts_until_the_last_one_of_the_process_is_closed(table: Path) -> None:
    first, second = SharedSinkLock(table), SharedSinkLock(table)
    first.close()
    first.close()
    assert not is_free(table)
    assert sink_lock_path(table).read_text() == "delta-rs\n"
    second.close()
    assert is_free(table)


def test_names_of_one_table_are_one_lock(table: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(table)
    assert sink_lock_path(tmp_path / "link") == sink_lock_path(table)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="cannot be made"):
        SharedSinkLock(tmp_path / "nothing" / "sink")


def test_a_sink_has_the_lock_until_it_is_closed(table: Path) -> None:
    write_deltalake(str(table), pa.table({"value": [0]}))
    with DeltaSink(str(table)):
        assert not is_free(table)
    assert is_free(table)
    with other_process(table, fcntl.LOCK_EX, "Spark"), pytest.raises(SinkError, match="Spark"):
        DeltaSink(str(table))
