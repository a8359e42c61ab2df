"""The helper: one process beside this one that speaks for all its members of groups in Kafka.

A regular expression or a parser in C can keep the interpreter busy for longer than `share.member.silence.ms`, and no
thread of this process sends anything meanwhile. The helper (`helper_program.py`) has an interpreter of its own. It
gives signs of life for members that hold records, and reports their end when this process ends, which it learns from
the end of a pipe that only this process has open.

It is started before an application gets the first records, ends with the last member, and is started again if it is
killed. It has a session of its own, so that a signal to this process group does not reach it, and no file of this
process but the pipe. Settings with passwords pass through the pipe only. A process that was forked from this one closes
the pipe, and is no member.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import confluent_kafka

from sharegroup.event_log import Event
from sharegroup.logs import helper_program
from sharegroup.logs.life_signs import LifeSigns

_REPORT_INTERVAL_S = 0.5
"""Interval at which the helper learns that a member sends requests itself, and so needs no sign of life."""
_WRITE_TIMEOUT_S = 5.0
"""Time after which a helper that does not read its full pipe is replaced."""
_PAUSE_S = 1.0
"""Time after which a helper that was killed is replaced."""

_logger = logging.getLogger(__name__)


class HelperProcess:
    """The helper of this process; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._lines: dict[int, bytes] = {}
        """Number of a member that the helper speaks for → the line by which it joins."""
        self._holders: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_possible = True
        self._is_reported = False
        os.register_at_fork(
            before=self._lock_for_fork, after_in_parent=self._unlock_after_fork, after_in_child=self._begin_in_fork
        )

    def new_number(self) -> int:
        """Return a number for a member."""
        return next(self._numbers)

    def hold(self, number: int, signs: LifeSigns, settings: dict[str, object]) -> None:
        """Speak for a member that holds records and has just sent a request, or got these records.

        Args:
            settings: configuration of a producer; it may hold secrets.
        """
        with self._lock:
            if number not in self._lines:
                line = self._join_line(number, signs, settings)
                if line is None:
                    return
                self._lines[number] = line
                if self._process is not None:
                    self._write(line)
            self._holders.add(number)
            if self._process is None:
                self._start()
            else:
                self._write(_line(number, "hold"))

    def release(self, number: int) -> None:
        """Give no signs of life for a member: it holds no records."""
        with self._lock:
            if number in self._holders:
                self._holders.remove(number)
                self._write(_line(number, "release"))

    def leave(self, number: int) -> None:
        """Speak for a member no more; with the last one the helper ends."""
        with self._lock:
            self._holders.discard(number)
            if self._lines.pop(number, None) is None:
                return
            self._write(_line(number, "leave"))
            if not self._lines:
                self._end()

    def _join_line(self, number: int, signs: LifeSigns, settings: dict[str, object]) -> bytes | None:
        fields = {
            "settings": settings,
            "topic": signs.topic,
            "partition": signs.partition,
            "key": signs.key.decode(),
            "alive": signs.alive.decode(),
            "ended": signs.ended.decode(),
        }
        try:
            return _line(number, "join", fields)
        except TypeError as error:
            # A callback for the log-in, for example: it runs in this interpreter only.
            self._report_missing(f"a setting cannot be passed to another process: {error}")
            return None

    def _start(self) -> None:
        """Start the helper, unless that has failed before."""
        if not self._is_possible:
            return
        try:
            process = subprocess.Popen(
                [_interpreter(), "-I", "-S", helper_program.__file__],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._is_possible = False
            self._report_missing(str(error))
            return
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._process = process
        threading.Thread(target=self._watch, args=(process,), name="share-group-helper", daemon=True).start()
        self._write(_line(os.getpid(), str(Path(confluent_kafka.__file__).parent)))
        for number, line in self._lines.items():
            self._write(line)
            if number in self._holders:
                self._write(_line(number, "hold"))

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a helper, and start another one if it was killed."""
        status = process.wait()
        with self._lock:
            if process is not self._process:
                return
            self._end()
            if status >= 0:
                self._is_possible = False
                self._report_missing(f"{sys.executable} ended with status {status}")
                return
        _logger.warning(Event("member_helper_killed", signal=-status))
        time.sleep(_PAUSE_S)
        with self._lock:
            if self._process is None and self._lines:
                self._start()

    def _write(self, line: bytes) -> None:
        """Write a line to the pipe; a helper that does not read it is killed, and `_watch` starts another one."""
        if self._process is None or self._process.stdin is None:
            return
        descriptor = self._process.stdin.fileno()
        is_writable = select.poll()
        is_writable.register(descriptor, select.POLLOUT)
        try:
            while line:
                if not is_writable.poll(_WRITE_TIMEOUT_S * 1_000):
                    self._process.kill()
                    return
                with suppress(BlockingIOError):
                    line = line[os.write(descriptor, line) :]
        except OSError:
            # It has ended, as `_watch` will see; or the application has closed all files.
            return

    def _end(self) -> None:
        """Close the pipe, so that the helper ends."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _report_missing(self, reason: str) -> None:
        """Log, once, that a member has no helper."""
        if not self._is_reported:
            self._is_reported = True
            _logger.warning(
                Event("member_helper_missing", reason=reason, effect="locks of members that die end by their time only")
            )

    def _lock_for_fork(self) -> None:
        self._lock.acquire()

    def _unlock_after_fork(self) -> None:
        self._lock.release()

    def _begin_in_fork(self) -> None:
        """Close the pipe, so that its end shows the end of the parent, and forget the parent's members."""
        process = self._process
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            # It is no child of this process, which cannot wait for it.
            process.returncode = 0
        self._lock = threading.RLock()
        self._lines, self._holders, self._process = {}, set(), None


_helper = HelperProcess()
"""The helper of this process."""


class ReportedState:
    """The state of a member that the helper knows."""

    def __init__(self) -> None:
        self._holds_records = False
        self._reported_s = 0.0

    def is_due(self, holds_records: bool, has_sent: bool, now_s: float) -> bool:
        """Return True if the state has to be reported to the helper now; it then counts as reported.

        The first records are reported at once. All else is at most twice a second: that the member has sent a request,
        and that it holds no records any more.

        Args:
            now_s: time on a monotonic clock.
        """
        if holds_records and not self._holds_records:
            is_due = True
        else:
            has_changed = has_sent if holds_records else self._holds_records
            is_due = has_changed and now_s >= self._reported_s + _REPORT_INTERVAL_S
        if is_due:
            self._holds_records, self._reported_s = holds_records, now_s
        return is_due


class KafkaMemberHelper:
    """The helper of this process, for one member.

    Args:
        settings: configuration of the helper's producer; it may hold secrets.
    """

    def __init__(self, signs: LifeSigns, settings: dict[str, object]) -> None:
        self._signs = signs
        self._settings = settings
        self._number = _helper.new_number()
        self._reported = ReportedState()

    def note(self, *, holds_records: bool, has_sent: bool) -> None:
        """Report the state to the helper, if it is due; see `MemberHelper.note`."""
        if self._reported.is_due(holds_records, has_sent, time.monotonic()):
            if holds_records:
                _helper.hold(self._number, self._signs, self._settings)
            else:
                _helper.release(self._number)

    def close(self) -> None:
        """End the help; see `MemberHelper.close`."""
        _helper.leave(self._number)


def _interpreter() -> str:
    """Return the path of Python.

    Raises:
        FileNotFoundError: the program of this process is not Python, but contains it.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        raise FileNotFoundError("this process was not started by a Python interpreter")
    return sys.executable


def _line(*values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"
