"""The program of the helper process (`helper_process.py`): `python -I -S helper_program.py`.

It reads lines of JSON from a pipe that only its parent writes to, and speaks for the members of its parent in Kafka:

1. It gives a sign of life each second for a member that has held records for two seconds, unless the member has just
   sent a request itself. So a busy interpreter cannot silence its members.
2. When the pipe ends, its parent has ended, and it reports that for each member. Then it ends.

While no member holds records it is blocked on the pipe. It imports nothing but a few modules of the standard library
and the C client: confluent_kafka's own `__init__` needs 100 ms and 7 MB, since it imports asyncio.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from confluent_kafka import Producer

FIRST_SIGN_S = 2.0
"""Time for which a member holds records before the first sign of life."""
SIGN_INTERVAL_S = 1.0
"""Interval of signs of life; `share.member.silence.ms` is several times as long."""
_LAST_WORDS_S = 10.0
"""Time for which it tries to report the end of its parent."""
_PARENT_END_S = 10.0
"""Maximum time between the end of the pipe and that of the parent's process."""
_CHECK_INTERVAL_S = 0.01


class HelpedMember:
    """A member that the helper speaks for.

    Args:
        settings: configuration of a producer.
        alive: value of a sign of life.
        ended: value of the report that the member's process has ended.
    """

    def __init__(
        self, settings: dict[str, object], topic: str, partition: int, key: str, alive: str, ended: str
    ) -> None:
        self.settings = settings
        self.topic = topic
        self.partition = partition
        self.key = key
        self.alive = alive
        self.ended = ended


class HelpedMembers:
    """The members, and when each of them needs a sign of life; times are those of a monotonic clock."""

    def __init__(self) -> None:
        self.by_number: dict[int, HelpedMember] = {}
        self._held_since_s: dict[int, float] = {}
        self._due_s: dict[int, float] = {}

    def join(self, number: int, member: HelpedMember) -> None:
        """Add a member, which holds no records."""
        self.by_number[number] = member

    def leave(self, number: int) -> None:
        """Remove a member."""
        self.release(number)
        self.by_number.pop(number, None)

    def hold(self, number: int, now_s: float) -> None:
        """Record that a member holds records, and that the processor has just heard from it."""
        since_s = self._held_since_s.setdefault(number, now_s)
        self._due_s[number] = max(since_s + FIRST_SIGN_S, now_s + SIGN_INTERVAL_S)

    def release(self, number: int) -> None:
        """Record that a member holds no records."""
        self._held_since_s.pop(number, None)
        self._due_s.pop(number, None)

    @property
    def next_due_s(self) -> float | None:
        """When the next sign of life is due; None while no member holds records."""
        return min(self._due_s.values(), default=None)

    def take_due(self, now_s: float) -> list[HelpedMember]:
        """Return the members whose sign of life is due; the next one is due an interval later."""
        due = [number for number, due_s in self._due_s.items() if due_s <= now_s]
        for number in due:
            self._due_s[number] = now_s + SIGN_INTERVAL_S
        return [self.by_number[number] for number in due]


class _Producers:
    """A producer for each configuration."""

    def __init__(self, client: str) -> None:
        """Import the C client alone.

        Args:
            client: folder of the package confluent_kafka.
        """
        package = types.ModuleType("confluent_kafka")
        package.__path__ = [client]
        sys.modules[package.__name__] = package
        self._new = importlib.import_module("confluent_kafka.cimpl").Producer
        self._producers: dict[str, Producer] = {}

    def append(self, member: HelpedMember, value: str) -> None:
        """Append a message of a member, without waiting for it."""
        key = json.dumps(member.settings, sort_keys=True)
        if key not in self._producers:
            self._producers[key] = self._new(member.settings)
        self._producers[key].produce(member.topic, value, member.key, member.partition)

    def poll(self) -> None:
        """Drop the messages that were delivered, or that were given up."""
        for producer in self._producers.values():
            producer.poll(0)

    def flush(self, timeout_s: float) -> None:
        """Wait until all messages are delivered."""
        deadline_s = time.monotonic() + timeout_s
        for producer in self._producers.values():
            producer.flush(max(deadline_s - time.monotonic(), 0))


def _is_stopped(process_id: int) -> bool:
    """Return True if a process stands still, by SIGSTOP for example; False where the machine does not show it."""
    try:
        with open(f"/proc/{process_id}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False


def _has_ended(parent: int) -> bool:
    """Return True once the parent has ended; False if it lives on, and has only closed the pipe."""
    deadline_s = time.monotonic() + _PARENT_END_S
    while os.getppid() == parent:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_CHECK_INTERVAL_S)
    return True


class _Lines:
    """The lines of the pipe."""

    def __init__(self) -> None:
        self._rest = b""
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)

    def read(self, until_s: float | None) -> list[bytes] | None:
        """Return complete lines; block until there are some, or a time; None when the pipe has ended."""
        timeout_ms = None if until_s is None else max(until_s - time.monotonic(), 0) * 1_000
        if not self._poll.poll(timeout_ms):
            return []
        data = os.read(0, 65_536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines if data else None


def main() -> None:
    """Speak for the members of the parent until the pipe ends.

    The first line is the parent's process id and the folder of confluent_kafka. All others begin with the number of a
    member: `[1, "join", {settings, …}]`, `[1, "hold"]`, `[1, "release"]`, `[1, "leave"]`.
    """
    # It has to outlive its parent, which a terminal or a service manager may end together with it.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    lines = _Lines()
    begin: list[bytes] | None = []
    while not begin:
        begin = lines.read(None)
        if begin is None:
            return
    parent, client = json.loads(begin.pop(0))
    producers = _Producers(client)
    members = HelpedMembers()
    new: list[bytes] | None = begin
    while new is not None:
        now_s = time.monotonic()
        for line in new:
            _receive(members, json.loads(line), now_s)
        if due := members.take_due(now_s):
            # A fork that ran no hook of Python's may hold the pipe open.
            if os.getppid() != parent:
                break
            if not _is_stopped(parent):
                for member in due:
                    producers.append(member, member.alive)
        producers.poll()
        new = lines.read(members.next_due_s)
    if members.by_number and _has_ended(parent):
        for member in members.by_number.values():
            producers.append(member, member.ended)
        producers.flush(_LAST_WORDS_S)
    # Nothing that is left needs a close of the connections.
    os._exit(0)


def _receive(members: HelpedMembers, message: list[object], now_s: float) -> None:
    match message:
        case [int(number), "join", dict(fields)]:
            members.join(number, HelpedMember(**fields))
        case [int(number), "hold"]:
            members.hold(number, now_s)
        case [int(number), "release"]:
            members.release(number)
        case [int(number), "leave"]:
            members.leave(number)


if __name__ == "__main__":
    main()
