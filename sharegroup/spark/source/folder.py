"""The folders of one member: a lock on the member id, and the acknowledgements of its batches.

A restarted query remains the member of its checkpoint, while its predecessor may still be leaving the group. Two
processes with one member id would close each other's share sessions again and again, so a file lock allows one.

The function of `foreachBatch` and the member run in two processes, of the driver's machine or beside a server of Spark
Connect. A batch's folder is among the temporary files, or in a folder that both processes see
(`acknowledgement.folder`); its path is in the batch's offset and in a column of its rows. Each call of `acknowledge`
adds one file, which is complete or absent; the member reads all files in the order of the calls once Spark has
committed the batch, and deletes the folder when its acknowledgements have responses. So acknowledgements take effect
with the commit of the batch, or not at all: a batch that is executed again begins with a new folder. Its first file has
the offsets of the batch; others are refused at the call.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import IO

from sharegroup.client.held_records import HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledgement, run_acknowledgement
from sharegroup.core.offset_ranges import RangeMap, gaps
from sharegroup.errors import ConfigurationError, InvalidRequestError
from sharegroup.spark.acknowledgement_frame import parse_acknowledgement

_POLL_S = 0.05
_BATCH_FILE = "batch"
_WRITTEN_FILE = "written"


class MemberFolder:
    """`sharegroup-<member id>` among the temporary files; readable by this user only.

    Args:
        acknowledgements: parent of a second folder of that name, for acknowledgements; by default they are in the
            first one.
    """

    def __init__(self, member_id: str, acknowledgements: Path | None = None) -> None:
        name = f"sharegroup-{member_id}"
        self._path = Path(tempfile.gettempdir()) / name
        self._acknowledgements = self._path if acknowledgements is None else acknowledgements / name
        self._file: IO[str] | None = None

    def acquire(self, timeout_s: float) -> bool:
        """Lock the member id on this machine; return False if another process keeps it for longer than the timeout.

        Raises:
            ConfigurationError: another user owns the folder, or may write to it.
        """
        give_up_at_s = time.monotonic() + timeout_s
        while not self._try_acquire():
            if time.monotonic() >= give_up_at_s:
                return False
            Event().wait(_POLL_S)
        return True

    def batch_path(self, number: int) -> Path:
        """Return the path of the folder with a batch's acknowledgements."""
        return self._acknowledgements / str(number)

    def release(self, keeps_acknowledgements: bool) -> None:
        """Unlock the member id; delete the folders unless the next process needs its acknowledgements."""
        if self._file is None:
            return
        if not keeps_acknowledgements:
            shutil.rmtree(self._acknowledgements, ignore_errors=True)
            shutil.rmtree(self._path, ignore_errors=True)
        self._file.close()
        self._file = None

    def _try_acquire(self) -> bool:
        with suppress(FileExistsError):
            self._path.mkdir(mode=0o700)
        path = self._path / "lock"
        try:
            _check_owned(self._path)
            file = path.open("a")
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held the lock before may have deleted the file with its folder.
            is_held = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_held = False
        if is_held:
            self._file = file
        else:
            file.close()
        return is_held


class AcknowledgementFolder:
    """The acknowledgements of one batch.

    A file of a call is a JSON list of [topic, partition, first offset, last offset, acknowledge type,
    redelivery_delay_ms]; the file `batch` is one of [topic, partition, first offset, last offset, topic id]. With a
    sink, the file `written` is there while results are written, and afterwards.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self, ranges: Iterable[HeldRange]) -> None:
        """Create the folder of a batch with these records; delete what an earlier execution of it left there."""
        self.delete()
        self._path.mkdir(parents=True, mode=0o700)
        stored = [[held.topic, held.partition, held.first_offset, held.last_offset, held.topic_id] for held in ranges]
        (self._path / _BATCH_FILE).write_text(json.dumps(stored), encoding="utf-8")

    def check(self, runs: Iterable[Acknowledgement]) -> None:
        """Check that acknowledgements are of records of the batch.

        Raises:
            InvalidRequestError: an offset is not one of the batch, or the batch is not being executed.
        """
        batch: dict[tuple[str, int], RangeMap[None]] = defaultdict(RangeMap)
        for topic, partition, first_offset, last_offset, _ in self.batch_ranges():
            batch[topic, partition].assign(first_offset, last_offset, None)
        for run in runs:
            held = batch[run.topic, run.partition].overlapping(run.first_offset, run.last_offset)
            for first_offset, _ in gaps(run.first_offset, run.last_offset, ((first, last) for first, last, _ in held)):
                raise InvalidRequestError(f"Offset {first_offset} of {run.topic}-{run.partition} is not in the batch.")

    def batch_ranges(self) -> list[tuple[str, int, int, int, str]]:
        """Return (topic, partition, first offset, last offset, topic id) of the batch's records.

        Raises:
            InvalidRequestError: the batch is not being executed.
        """
        try:
            return [tuple(stored) for stored in json.loads((self._path / _BATCH_FILE).read_text("utf-8"))]
        except FileNotFoundError as error:
            raise self._not_executed() from error

    def claim_write(self) -> bool:
        """Return True for the first of the calls in this execution of the batch that write its results.

        Raises:
            InvalidRequestError: the batch is not being executed.
        """
        try:
            (self._path / _WRITTEN_FILE).touch(exist_ok=False)
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            raise self._not_executed() from error
        return True

    def claim_lost_write(self) -> bool:
        """Return True, once, if no call has begun to write the results of the batch; False if the folder is gone."""
        try:
            (self._path / _WRITTEN_FILE).touch(exist_ok=False)
        except (FileExistsError, FileNotFoundError):
            return False
        return True

    def return_write(self) -> None:
        """Let another call write, since this one has failed."""
        (self._path / _WRITTEN_FILE).unlink(missing_ok=True)

    def exists(self) -> bool:
        """Return True until the acknowledgements have responses."""
        return self._path.exists()

    def delete(self) -> None:
        """Delete the folder with its files."""
        shutil.rmtree(self._path, ignore_errors=True)

    def append(self, runs: Iterable[Acknowledgement]) -> None:
        """Add a file; the names of files sort in the order of the calls. Topic ids and reasons are not stored.

        Raises:
            InvalidRequestError: this process sees no such folder: the batch is not being executed.
        """
        stored = [
            [
                run.topic,
                run.partition,
                run.first_offset,
                run.last_offset,
                run.acknowledge_type.name.lower(),
                run.redelivery_delay_ms,
            ]
            for run in runs
        ]
        try:
            file_count = sum(1 for _ in self._path.iterdir())
            temporary = self._path / f"{secrets.token_hex(8)}.tmp"
            temporary.write_text(json.dumps(stored), encoding="utf-8")
            os.replace(temporary, self._path / f"{file_count:06d}-{secrets.token_hex(4)}.json")
        except FileNotFoundError as error:
            raise self._not_executed() from error

    def runs(self) -> Iterator[Acknowledgement]:
        """Return the runs of all files, in the order in which they were added."""
        for path in sorted(self._path.glob("*.json")):
            # A file of an earlier release has no delay.
            for topic, partition, first_offset, last_offset, *acknowledgement in json.loads(path.read_text("utf-8")):
                of_record = parse_acknowledgement(*acknowledgement)
                yield run_acknowledgement(("", partition), topic, first_offset, last_offset, of_record)

    def _not_executed(self) -> InvalidRequestError:
        return InvalidRequestError(
            f"The batch of acquisition {self._path} is not being executed.",
            "Acknowledge in foreachBatch, before it returns, and on the machine of the driver; where it runs "
            "elsewhere, set the option acknowledgement.folder to a folder that both see.",
        )


def _check_owned(path: Path) -> None:
    """Refuse a folder that another user owns or may write to: all users may create temporary files."""
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        problem = "is no folder"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"has mode {mode:o}: other users may write to it"
    else:
        return
    raise ConfigurationError(
        f"The member's folder {path} {problem}.",
        "Delete it, or set TMPDIR to a folder that only this user may write to.",
    )
