"""The followers of published commits, on a thread of their own: the commit thread hands each commit over, and goes on.

Logging a commit, counting it, folding it for metrics and starting the upkeep may take long, or fail, and no response
waits for them. A follower that fails is logged, counted, and left out from then on, since it cannot make up for what it
has missed; the others go on, and so does the loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from sharegroup.event_log import Event
from sharegroup.metrics.processor_metrics import LoopFigures
from sharegroup.processor.commit import Commit
from sharegroup.processor.part import Part
from sharegroup.protocol.group_records import ShareGroupMemberMetadata, ShareGroupMemberRemoved, group_record
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import FoldedState

logger = logging.getLogger("sharegroup.processor")

MAX_WAITING_ITEMS = 100_000
"""Commits, messages and rows that may wait for the followers; when there are more, all followers are left out."""


class Followers:
    """Hands each published commit to all followers, in order."""

    def __init__(self, figures: LoopFigures) -> None:
        self._figures = figures
        self._followers: dict[str, Callable[[Commit], None]] = {}
        self._queue: SimpleQueue[Commit | None] = SimpleQueue()
        self._handed_count = self._handled_count = 0
        self._too_slow: list[str] = []
        self._part = Part("followers", self._run, self._thread_failed, lambda: self._queue.put(None))

    def add(self, name: str, follower: Callable[[Commit], None]) -> None:
        """Add a follower, before the start; it is called on the thread of the followers."""
        self._followers[name] = follower

    def start(self) -> None:
        """Start the thread."""
        self._part.start()

    def stop(self, timeout_s: float) -> None:
        """Hand over all that was published, and end the thread."""
        self._part.stop(timeout_s)

    def published(self, commit: Commit) -> None:
        """Queue a published commit; returns at once, and writes no log, since a log that hangs may be the reason."""
        if not self._followers:
            return
        if self._handed_count - self._handled_count >= MAX_WAITING_ITEMS:
            self._too_slow += [name for name in list(self._followers) if self._is_left_out(name)]
            self._forget_waiting()
            return
        self._handed_count += _size(commit)
        self._queue.put(commit)

    def follows(self, name: str) -> bool:
        """Return True while a follower gets each commit."""
        return name in self._followers

    @property
    def have_caught_up(self) -> bool:
        """Return True if no published commit waits."""
        return self._handed_count == self._handled_count

    def _run(self) -> None:
        while (commit := self._queue.get()) is not None:
            for name in list(self._followers):
                follower = self._followers.get(name)
                try:
                    if follower is not None:
                        follower(commit)
                except Exception as failure:
                    self._leave_out(name, f"{type(failure).__name__}: {failure}")
            self._handled_count += _size(commit)
            self._log_too_slow()

    def _leave_out(self, name: str, reason: str) -> None:
        if self._is_left_out(name):
            logger.error(Event("follower_left_out", follower=name, reason=reason))

    def _is_left_out(self, name: str) -> bool:
        """Leave a follower out, and count that; return False if it was left out before."""
        if self._followers.pop(name, None) is None:
            return False
        self._figures.failed_followers += 1
        return True

    def _forget_waiting(self) -> None:
        try:
            while self._queue.get_nowait() is not None:
                pass
        except Empty:
            return
        # The last one was the stop's.
        self._queue.put(None)

    def _log_too_slow(self) -> None:
        while self._too_slow:
            reason = f"{MAX_WAITING_ITEMS} commits, messages and rows waited for the followers"
            logger.error(Event("follower_left_out", follower=self._too_slow.pop(0), reason=reason))

    def _thread_failed(self, failure: BaseException) -> None:
        for name in list(self._followers):
            self._leave_out(name, f"{type(failure).__name__}: {failure}")


def _size(commit: Commit) -> int:
    return 1 + commit.message_count + sum(len(output.rows) for output in commit.outputs)


class GroupActivity:
    """Follows the members of all groups, to find out for how long a processor has been idle.

    Args:
        folded: all groups at the start; only read, and only here.
        monotonic_s: a clock for durations, in seconds.
    """

    def __init__(self, folded: FoldedState, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = monotonic_s
        self._busy_at_s = monotonic_s()
        self._lock = threading.Lock()
        self._members = {
            (group.group_id, member_id) for group in folded.groups.values() for member_id in group.metadata.members
        }

    def published(self, commit: Commit) -> None:
        """Update from a published commit."""
        with self._lock:
            self._busy_at_s = self._now_s()
            for row in commit.rows():
                if row.record_type is RecordType.GROUP_METADATA:
                    for fields in row.payload.get("records", []):
                        self._apply(row.group_id, fields)

    def idle_s(self, has_work: bool) -> float | None:
        """Return the seconds for which nothing was left to do; None while a group has a member, or work is left."""
        with self._lock:
            if self._members or has_work:
                self._busy_at_s = self._now_s()
                return None
            return self._now_s() - self._busy_at_s

    def _apply(self, group_id: str, fields: dict[str, object]) -> None:
        match group_record(fields):
            case ShareGroupMemberMetadata(member_id=member_id):
                self._members.add((group_id, member_id))
            case ShareGroupMemberRemoved(member_id=member_id):
                self._members.discard((group_id, member_id))
