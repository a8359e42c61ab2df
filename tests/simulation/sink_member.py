"""A member with a sink: it names the sink in its fetches, writes each acquisition once, and looks open writes up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sharegroup.client.held_records import Acquisition, HeldRange, acquired_ranges
from sharegroup.client.sink_commits import CLOSING_PART
from sharegroup.core.offset_ranges import RangeMap, subtract
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.core.run import NO_WRITE
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatRequest
from sharegroup.protocol.messages import Message, ResponseEnvelope, changed, parsed, request
from sharegroup.protocol.share_fetch import (
    AcknowledgementRange,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from sharegroup.protocol.sink_writes import UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from tests.simulation.member import REQUEST_TOPIC, SimulatedMember
from tests.simulation.sink import SimulatedSink
from tests.simulation.sink_writer import Part, SinkWriter, refusals

_SOON = (1, 100)
_GIVING_UP = (AcknowledgeType.RELEASE, AcknowledgeType.RELEASE, AcknowledgeType.UNREAD, AcknowledgeType.REJECT)
_SEND_AGAIN_MS = (100, 1_000)


class SinkMember(SimulatedMember):
    """A member of a group that writes exactly once; its application has the sink."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        sink = self._application.sink
        assert sink is not None
        self._sink: SimulatedSink = sink
        self._writer = SinkWriter(self._world, sink, self._resolve)
        self._versions: dict[PartitionKey, RangeMap[int]] = {}
        """The last write of each record that was acquired."""
        self._writes: dict[int, UnresolvedWrite] = {}
        self._acquired: dict[int, tuple[HeldRange, ...]] = {}
        """Version → all records of the write, those that the application does not get included."""
        self._version_of: dict[int, int] = {}
        """Number of an acquisition → the version of its write."""
        self._begun: set[int] = set()
        """Writes that have begun, or may still."""
        self._sent: dict[int, Message] = {}
        """Correlation id → the request as it was sent first: it is repeated unchanged."""
        self._heard: set[int] = set()

    # What it sends and receives, beside the state machine.

    def _outgoing(self, correlation_id: int, body: Message) -> Message:
        if correlation_id not in self._sent:
            self._sent[correlation_id] = self._with_sink(body)
        return self._sent[correlation_id]

    def _with_sink(self, body: Message) -> Message:
        if isinstance(body, ShareGroupHeartbeatRequest):
            return changed(body, has_sink=True)
        if isinstance(body, ShareFetchRequest):
            return changed(body, topics=self._with_versions(body.topics), sink=self._sink.description)
        if isinstance(body, ShareAcknowledgeRequest):
            return changed(body, topics=self._with_versions(body.topics))
        return body

    def _with_versions(self, topics: Sequence[FetchTopic]) -> list[FetchTopic]:
        return [
            changed(
                topic,
                partitions=[
                    changed(
                        partition,
                        acknowledgement_batches=[
                            part
                            for batch in partition.acknowledgement_batches
                            for part in self._by_version((topic.topic_id, partition.partition_index), batch)
                        ],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]

    def _by_version(self, key: PartitionKey, batch: AcknowledgementRange) -> list[AcknowledgementRange]:
        """Divide a range by the writes of its records, and name each."""
        versions = self._versions.get(key)
        parts = [] if versions is None else versions.overlapping(batch.first_offset, batch.last_offset)
        return [
            changed(
                batch,
                first_offset=first,
                last_offset=last,
                acknowledge_types=_types(batch, first, last),
                write_version=version,
                is_begun=version in self._begun,
            )
            for first, last, version in parts
        ]

    def _take_response(self, response: ResponseEnvelope) -> None:
        version = self._noted(response)
        before = self._protocol._acquisition_count
        super()._take_response(response)
        if self._protocol._acquisition_count > before:
            self._version_of[self._protocol._acquisition_count] = version

    def _noted(self, response: ResponseEnvelope) -> int:
        """Note the writes of a response, and return the one of its records."""
        if response.api_key != ApiKey.SHARE_FETCH or response.correlation_id in self._heard:
            return NO_WRITE
        self._heard.add(response.correlation_id)
        if not response.body.get("write") and not response.body.get("unresolved"):
            return NO_WRITE
        body = parsed(ShareFetchResponse, response.body)
        for write in body.unresolved:
            if self.is_good or self._world.happens(0.9):
                last_ms = 50 if self.is_good else 300 if self._world.happens(0.9) else 20_000
                self._world.after(1, last_ms, partial(self._look_up, write))
        if body.write is None:
            return NO_WRITE
        sent = self._sent[response.correlation_id]
        assert isinstance(sent, ShareFetchRequest)
        assert sent.sink is not None
        version = body.write.version
        self._writes[version] = UnresolvedWrite(
            app_id=body.write.app_id,
            version=version,
            table_id=sent.sink.table_id,
            address=sent.sink.address,
            sink_version=sent.sink.version,
        )
        self._acquired[version] = acquired_ranges(body, {})
        for held in self._acquired[version]:
            self._versions.setdefault(held.key, RangeMap()).assign(held.first_offset, held.last_offset, version)
        return version

    def _look_up(self, write: UnresolvedWrite) -> None:
        if not self.is_gone:
            self._writer.look_up(write)

    def _resolve(self, body: ResolveWriteRequest) -> None:
        """Send what the sink says, later if the log is away; it may be lost, and it may come twice."""
        if self._log.is_away:
            self._world.after(*_SEND_AGAIN_MS, lambda: self._resolve(body))
            return
        if not self.is_good and self._world.happens(0.7 if self.is_gone else 0.05):
            self._world.trace(self.member_id, "loses a resolution of", body.version)
            return
        self._world.trace(self.member_id, "resolves", body.version, body.others, body.is_closed)
        value = request(ApiKey.RESOLVE_WRITE, self.group_id, body).encoded()
        for _ in range(2 if self._world.happens(0.1) else 1):
            self._log.append(REQUEST_TOPIC, self._request_partition, [NewRecord(self.group_id.encode(), value)])
        if self._world.happens(0.05):
            self._world.after(100, 20_000, lambda: self._resolve(body))

    # What it does with records.

    def _process(self, acquisition: Acquisition) -> None:
        ranges, version = acquisition.ranges, self._version_of[acquisition.number]
        write = self._writes[version]
        self._world.trace(self.member_id, "takes write", version, ranges)
        if any(self._application.first_deadly(held) is not None for held in ranges):
            self._world.after(1, 300, self._crash)
            return
        self._world.after(1, 20 if self.is_good else 200, lambda: self._handle_write(write, ranges, acquisition))

    def _handle_write(self, write: UnresolvedWrite, ranges: Sequence[HeldRange], acquisition: Acquisition) -> None:
        if self.is_gone:
            return
        if self._world.now_ms < self.busy_until_ms:
            self._world.at(self.busy_until_ms, lambda: self._handle_write(write, ranges, acquisition))
            return
        lock_ms = acquisition.lock_timeout_ms
        # Records that the member returned by itself, or has acknowledged before, have no result.
        left_out = [(held, AcknowledgeType.UNREAD) for held in self._left_out(write.version, ranges)]
        whole = Part(CLOSING_PART, ranges, refused=left_out)
        if self.is_good:
            self._begin(write, [whole], _SOON)
            return
        if self._sink.is_away and self._world.happens(0.7):
            if self._world.happens(0.7):
                self._give_up(write, ranges, AcknowledgeType.UNREAD)
            return
        chance = self._world.random.random()
        if chance < 0.45:
            refused = left_out + refusals(self._world, ranges)
            self._begin(write, [Part(CLOSING_PART, ranges, refused=refused)], _SOON)
        elif chance < 0.55:
            self._begin(write, [whole], (lock_ms - 300, lock_ms + 1_000))
        elif chance < 0.60:
            # A process that stands still, and wakes up when others have its records.
            self._begin(write, [whole], (lock_ms, 60_000))
        elif chance < 0.65:
            self._begin(write, [whole], _SOON, has_report=False)
        elif chance < 0.73:
            self._begin(write, _in_parts(ranges), _SOON if self._world.happens(0.5) else (10, lock_ms))
        elif chance < 0.78:
            # A second run decides otherwise than the first; the first commit counts.
            for _ in range(2):
                refused = left_out + refusals(self._world, ranges)
                self._begin(write, [Part(CLOSING_PART, ranges, refused=refused)], (1, lock_ms))
        elif chance < 0.88:
            self._give_up(write, ranges, self._world.random.choice(_GIVING_UP))
        elif chance < 0.94:
            self._begin(write, [whole], (1, 2 * lock_ms))
            self._give_up(write, ranges, self._world.random.choice(_GIVING_UP))
        elif chance < 0.97:
            for held in ranges:
                if self._is_latest(held, write.version):
                    self._acknowledging(held, AcknowledgeType.RENEW)()
            self._world.after(1, lock_ms, lambda: self._begin(write, [whole], _SOON))

    def _begin(
        self, write: UnresolvedWrite, parts: list[Part], commit_ms: tuple[int, int], has_report: bool = True
    ) -> None:
        self._begun.add(write.version)
        self._world.trace(self.member_id, "begins write", write.version)
        self._writer.write(write, parts, commit_ms, has_report)

    def _give_up(self, write: UnresolvedWrite, ranges: Sequence[HeldRange], kind: AcknowledgeType) -> None:
        """Give all records of a write up, in one message or several; it does not begin any more."""
        self._world.trace(
            self.member_id, "gives up write", write.version, "that has begun", write.version in self._begun
        )
        for held in ranges:
            if self._is_latest(held, write.version):
                self._acknowledging(held, kind)()

    def _is_latest(self, held: HeldRange, version: int) -> bool:
        """Return True if the member knows no later write of a record: an acknowledgement would be of that one."""
        writes = self._versions[held.key].overlapping(held.first_offset, held.last_offset)
        return all(each == version for _, _, each in writes)

    def _left_out(self, version: int, ranges: Sequence[HeldRange]) -> list[HeldRange]:
        bounds: dict[PartitionKey, list[tuple[int, int]]] = {}
        for held in ranges:
            bounds.setdefault(held.key, []).append((held.first_offset, held.last_offset))
        return [part for held in self._acquired[version] for part in subtract(held, sorted(bounds.get(held.key, ())))]


def _types(batch: AcknowledgementRange, first: int, last: int) -> list[AcknowledgeType]:
    types = batch.acknowledge_types
    return types if len(types) == 1 else types[first - batch.first_offset : last - batch.first_offset + 1]


def _in_parts(ranges: Sequence[HeldRange]) -> list[Part]:
    """Divide a write, as a bisection does."""
    middle = len(ranges) // 2
    if not middle:
        return [Part(CLOSING_PART, ranges, names_all=True)]
    return [Part(0, ranges[:middle], names_all=True), Part(CLOSING_PART, ranges[middle:], names_all=True)]
