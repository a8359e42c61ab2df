"""Looks up, in a thread of its own, the writes that the leader asks a member for, and reports what the sink says.

No attempt is the last one: a sink that is away, and an error of whatever kind, are logged, and the write is tried again
until it is reported.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from sharegroup.client.group_member import GroupMember
from sharegroup.errors import ShareGroupError
from sharegroup.event_log import Event
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest

_WAIT_MS = 1_000
"""Longest wait for a write; also the pause before failed ones are tried again."""
_EVENT_INTERVAL_S = 60.0
"""A write that cannot be looked up is logged once in this time."""
_JOIN_S = 0.5

_logger = logging.getLogger(__name__)


class LookupSink(Protocol):
    """A table in which writes can be looked up."""

    @property
    def sink(self) -> Sink:
        """The table, with its version when it was last loaded."""
        ...

    def resolve(self, write: UnresolvedWrite, /) -> ResolveWriteRequest:
        """Fence a write unless it is complete, and return what the table says of it, for ever."""
        ...


class WriteResolver:
    """Looks up the writes of a member's sink until `close`."""

    def __init__(self, member: GroupMember, sink: LookupSink) -> None:
        self._member = member
        self._sink = sink
        self._changed = threading.Condition()
        self._waiting: dict[int, UnresolvedWrite] = {}
        """Version → write that is not reported yet."""
        self._logged_s: dict[int, float] = {}
        """Version → when its failure was logged."""
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"share-group-resolver-{member.member_id}", daemon=True)
        self._thread.start()

    @property
    def waiting_count(self) -> int:
        """The number of writes that are not reported yet."""
        with self._changed:
            return len(self._waiting)

    def add(self, write: UnresolvedWrite) -> None:
        """Look a write up that this member has begun and does not know the outcome of."""
        with self._changed:
            self._waiting[write.version] = write
        self._member.add_lookup(write)

    def drain(self, timeout_s: float) -> bool:
        """Wait until all writes are reported; return False at the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout_s)

    def close(self) -> bool:
        """End the thread; return False if the current lookup goes on. Others get what is not reported."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._member.notify()
        self._thread.join(_JOIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not (self._is_closed or self._member.is_ended):
            asked = self._member.await_unresolved(_WAIT_MS, lambda: self._is_closed)
            with self._changed:
                self._waiting.update((write.version, write) for write in asked)
                writes = list(self._waiting.values())
            for write in writes:
                if self._is_closed:
                    return
                self._resolve(write)
            if self.waiting_count:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, _WAIT_MS / 1000)

    def _resolve(self, write: UnresolvedWrite) -> None:
        try:
            self._member.report(self._sink.resolve(write))
            self._member.name_sink(self._sink.sink)
        except Exception as error:
            self._failed(write, error)
            return
        with self._changed:
            self._waiting.pop(write.version, None)
            self._changed.notify_all()
        if self._logged_s.pop(write.version, None) is not None:
            _logger.info(Event("write_resolved", write=write.version, sink=write.address))

    def _failed(self, write: UnresolvedWrite, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s < self._logged_s.get(write.version, float("-inf")) + _EVENT_INTERVAL_S:
            return
        self._logged_s[write.version] = now_s
        event = Event("write_not_resolved", write=write.version, sink=write.address, reason=str(error))
        _logger.warning(event, exc_info=None if isinstance(error, ShareGroupError) else error)
