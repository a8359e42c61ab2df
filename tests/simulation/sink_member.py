"""A member with a sink: it writes each acquisition once, reports what the sink says, and looks open writes up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sharegroup.client.held_records import Acquisition, HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.sink_commits import CLOSING_PART
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import request
from sharegroup.protocol.sink_writes import UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from tests.simulation.member import REQUEST_TOPIC, SimulatedMember
from tests.simulation.sink import SimulatedSink
from tests.simulation.sink_writer import Part, SinkWriter, Times, refusals

_SOON = (1, 100)
_GIVING_UP = (AcknowledgeType.RELEASE, AcknowledgeType.RELEASE, AcknowledgeType.UNREAD, AcknowledgeType.REJECT)


class SinkMember(SimulatedMember):
    """A member of a group that writes exactly once; its application has the sink."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        sink = self._application.sink
        assert sink is not None
        self._sink: SimulatedSink = sink
        self._writer = SinkWriter(self._world, sink, self._report)
        self._begun: set[int] = set()
        """Writes that have begun, or may still."""

    def _poll(self) -> None:
        super()._poll()
        for write in self._protocol.writes.take_unresolved():
            if self.is_good or self._world.happens(0.9):
                last_ms = 50 if self.is_good else 300 if self._world.happens(0.9) else 20_000
                self._world.after(1, last_ms, partial(self._begin_lookup, write))

    def _begin_lookup(self, write: UnresolvedWrite) -> None:
        if not self.is_gone:
            self._writer.begin_lookup(write)

    def _send(self) -> None:
        self._protocol.session.sink = self._sink.description
        super()._send()

    def _report(self, resolution: ResolveWriteRequest) -> None:
        """Report what the sink says of a write, perhaps twice, late, or never; who is gone may have a JVM that does."""
        if not self.is_good and self._world.happens(0.7 if self.is_gone else 0.05):
            self._world.trace(self.member_id, "loses a report of write", resolution.version)
            return
        self._world.trace(self.member_id, "reports write", resolution.version, resolution.others, resolution.is_closed)
        if not self.is_gone:
            self._protocol.writes.report(resolution)
            self.wake()
        elif not self._log.is_away:
            value = request(ApiKey.RESOLVE_WRITE, self.group_id, resolution).encoded()
            self._log.append(REQUEST_TOPIC, self._request_partition, [NewRecord(self.group_id.encode(), value)])
        if self._world.happens(0.05):
            self._world.after(100, 20_000, lambda: self._report(resolution))

    def _acknowledgement(self, held: HeldRange, kind: AcknowledgeType) -> Acknowledgement:
        return held.acknowledgement(kind, is_begun=held.write_version in self._begun)

    # What it does with records.

    def _process(self, acquisition: Acquisition) -> None:
        self._world.trace(self.member_id, "takes write", acquisition.write)
        if any(self._application.first_deadly(held) is not None for held in acquisition.ranges):
            self._world.after(1, 300, self._crash)
            return
        self._world.after(1, 20 if self.is_good else 200, lambda: self._handle_write(acquisition))

    def _handle_write(self, acquisition: Acquisition) -> None:
        if self.is_gone:
            return
        if self._world.now_ms < self.busy_until_ms:
            self._world.at(self.busy_until_ms, lambda: self._handle_write(acquisition))
            return
        held_write = acquisition.write
        assert held_write is not None
        write, ranges, lock_ms = held_write.unresolved, acquisition.ranges, acquisition.lock_timeout_ms
        # Records that the member does not have any more have no result.
        whole = partial(Part, CLOSING_PART, ranges, acquisition.record_count < held_write.record_count)
        if self.is_good:
            self._begin(write, [whole()], _SOON)
            return
        if self._sink.is_away and self._world.happens(0.7):
            if self._world.happens(0.7):
                self._give_up(ranges, AcknowledgeType.UNREAD)
            return
        chance = self._world.random.random()
        if chance < 0.45:
            self._begin(write, [whole(refusals(self._world, ranges))], _SOON)
        elif chance < 0.55:
            self._begin(write, [whole()], (lock_ms - 300, lock_ms + 1_000))
        elif chance < 0.60:
            # A process that stands still, and wakes up when others have its records.
            self._begin(write, [whole()], (lock_ms, 60_000))
        elif chance < 0.65:
            self._begin(write, [whole()], _SOON, has_report=False)
        elif chance < 0.73:
            self._begin(write, _in_parts(ranges), _SOON if self._world.happens(0.5) else (10, lock_ms))
        elif chance < 0.78:
            # A second run decides otherwise than the first; the first commit counts.
            for _ in range(2):
                self._begin(write, [whole(refusals(self._world, ranges))], (1, lock_ms))
        elif chance < 0.88:
            self._give_up(ranges, self._world.random.choice(_GIVING_UP))
        elif chance < 0.94:
            self._begin(write, [whole()], (1, 2 * lock_ms))
            self._give_up(ranges, self._world.random.choice(_GIVING_UP))
        elif chance < 0.97:
            for held in ranges:
                self._acknowledging(held, AcknowledgeType.RENEW)()
            self._world.after(1, lock_ms, lambda: self._begin(write, [whole()], _SOON))

    def _begin(self, write: UnresolvedWrite, parts: list[Part], commit_ms: Times, has_report: bool = True) -> None:
        self._begun.add(write.version)
        self._world.trace(self.member_id, "begins write", write.version)
        self._writer.write(write, parts, commit_ms, has_report)

    def _give_up(self, ranges: Sequence[HeldRange], kind: AcknowledgeType) -> None:
        """Give all records of a write up, in one message or several; it does not begin any more."""
        for held in ranges:
            self._acknowledging(held, kind)()


def _in_parts(ranges: Sequence[HeldRange]) -> list[Part]:
    """Divide a write, as a bisection does."""
    middle = len(ranges) // 2
    if not middle:
        return [Part(CLOSING_PART, ranges, names_all=True)]
    return [Part(0, ranges[:middle], names_all=True), Part(CLOSING_PART, ranges[middle:], names_all=True)]
