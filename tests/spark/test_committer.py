"""Persist before respond: what is committed, what is told, and in which order; real state table and log, no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sharegroup.actor.effects import Effect, Persist, Respond, Send, Undecodable, WatchLog
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import CheckpointDivergedError, FencedProcessorError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import ResponseEnvelope, decoded_request, decoded_response, request
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.actor_function import ActorOutput
from sharegroup.spark.bootstrap import CheckpointIdentity
from sharegroup.spark.committer import CommitPoint, Committer, CommitterMetrics
from sharegroup.spark.facts import FactSource
from sharegroup.spark.link_topics import ensure_topics
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter

GROUP_ID = "group-1"
BATCH_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@dataclass
class Desk:
    """A committer, with the log and the table that it writes to.

    `passed` has (point, rows, answers) of each commit point.

    Attributes:
        folder: where both are.
        last_marker: what the committer believes to be committed already.
        start_offsets: where the query of its checkpoint began.
    """

    folder: Path
    last_marker: tuple[int, dict[int, int]] | None = None
    start_offsets: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0, 2: 0})
    metrics: CommitterMetrics = field(default_factory=CommitterMetrics)

    def __post_init__(self) -> None:
        self.config = ProcessorConfig(
            log_path=self.folder / "log.db",
            state_table_path=str(self.folder / "state"),
            checkpoint_path=str(self.folder / "checkpoint"),
            request_topic_partitions=3,
        )
        self.log = LocalLog(self.config.log_path)
        ensure_topics(self.log, self.config)
        self.writer = StateTableWriter.open(self.config.state_table_path, {})
        identity = CheckpointIdentity("checkpoint-1", "topic-id", self.start_offsets)
        self.passed: list[tuple[CommitPoint, int, int]] = []
        self.committer = Committer(
            self.log, self.writer, self.config, identity, self.last_marker, self.metrics, self._pass
        )
        self.facts = FactSource(self.log, self.committer.send, lambda failure: None)

    def commit(self, commit_id: int, *outputs: ActorOutput) -> None:
        self.committer.commit(commit_id, outputs, self.facts)

    def _pass(self, point: CommitPoint) -> None:
        self.passed.append((point, len(self.rows()), len(self.told())))

    def rows(self) -> list[StateRow]:
        """What is in the table, but for the fence."""
        rows = StateTableReader(self.config.state_table_path).rows()
        return [row for row in rows if row.record_type is not RecordType.FENCE]

    def markers(self) -> list[tuple[int, dict[str, int]]]:
        """(batch id, end offsets), in order."""
        markers = [row for row in self.rows() if row.record_type is RecordType.COMMIT_MARKER]
        return sorted((row.commit_id, row.payload["end_offsets"]) for row in markers)

    def told(self) -> list[int]:
        """Correlation ids of the answers in partition 0 of the response log."""
        end = self.log.offsets("__share_responses")[0].end_offset
        return [decoded_response(r.value).correlation_id for r in self.log.read("__share_responses", 0, 0, end)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.log.close()


def output(effects: Sequence[Effect] = (), *, partition: int = 0, end_offset: int = 1, count: int = 1) -> ActorOutput:
    return ActorOutput(GROUP_ID, "leader", partition, end_offset, count, BATCH_MS, BATCH_MS, list(effects))


def row() -> Persist:
    return Persist(StateRow(record_type=RecordType.GROUP_METADATA, group_id=GROUP_ID, time_ms=BATCH_MS))


def answer(correlation_id: int, partition: int = 0) -> Respond:
    envelope = ResponseEnvelope(
        api_key=ApiKey.SHARE_FETCH, correlation_id=correlation_id, group_id=GROUP_ID, member_id="member"
    )
    return Respond(partition, envelope)


def test_a_batch_is_one_commit_with_its_marker(desk: Desk) -> None:
    desk.commit(0, output([row()], end_offset=4), output([row()], partition=2, end_offset=9))
    assert [(row.record_type, row.commit_id, row.time_ms, row.leader_epoch) for row in desk.rows()] == [
        (RecordType.COMMIT_MARKER, 0, BATCH_MS, 1),
        (RecordType.GROUP_METADATA, 0, BATCH_MS, 1),
        (RecordType.GROUP_METADATA, 0, BATCH_MS, 1),
    ]
    assert desk.markers() == [(0, {"0": 4, "1": 0, "2": 9})]


def test_a_marker_says_how_far_each_partition_is_applied(desk: Desk) -> None:
    desk.commit(0, output(end_offset=4), output(end_offset=3), output(partition=2, end_offset=9))
    desk.commit(1, output(partition=1, end_offset=1), output(end_offset=5))
    desk.commit(2, output(partition=2, end_offset=11))
    assert desk.markers() == [
        (0, {"0": 4, "1": 0, "2": 9}),
        (1, {"0": 5, "1": 1, "2": 9}),
        (2, {"0": 5, "1": 1, "2": 11}),
    ]


def test_the_first_marker_of_a_rebuilt_checkpoint_says_what_was_applied_before_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, start_offsets={0: 100, 1: 7, 2: 30})
    desk.commit(0, output(end_offset=104))
    assert desk.markers() == [(0, {"0": 104, "1": 7, "2": 30})]


def test_a_marker_says_how_many_rows_its_batch_has(desk: Desk) -> None:
    desk.commit(0, output([row(), answer(1)]), output([row(), row()]))
    desk.commit(1, output([answer(2)], end_offset=2))
    markers = [row for row in desk.rows() if row.record_type is RecordType.COMMIT_MARKER]
    assert [marker.payload["row_count"] for marker in markers] == [4, 1]


def test_nobody_is_told_of_what_is_not_committed(desk: Desk) -> None:
    desk.commit(0, output([row(), answer(1)]))
    StateTableWriter.open(desk.config.state_table_path, {})
    committed = desk.rows()
    message = Send(request(ApiKey.TICK, GROUP_ID, Tick()))
    with pytest.raises(FencedProcessorError):
        desk.commit(1, output([row(), answer(2), message], end_offset=2))
    assert desk.told() == [1]
    assert desk.rows() == committed
    assert all(found.end_offset == 0 for found in desk.log.offsets("__share_requests").values())


def test_the_points_of_a_commit_lie_after_the_rows_and_after_the_answers(desk: Desk) -> None:
    desk.commit(0, output([row(), answer(1)]))
    assert desk.passed == [(CommitPoint.ROWS_COMMITTED, 2, 0), (CommitPoint.EVERYONE_TOLD, 2, 1)]


def test_a_batch_that_is_executed_again_is_told_again_and_not_committed_again(tmp_path: Path) -> None:
    first = Desk(tmp_path)
    first.commit(0, output([row(), answer(1)], end_offset=3))
    committed = first.rows()
    first.log.close()
    again = Desk(tmp_path, last_marker=(0, {0: 3, 1: 0, 2: 0}))
    again.commit(0, output([row(), answer(1)], end_offset=3))
    assert again.rows() == committed
    assert again.told() == [1, 1]
    assert (again.metrics.batches, again.metrics.repeated_batches) == (1, 1)
    again.commit(1, output([row(), answer(2)], end_offset=4))
    assert again.told() == [1, 1, 2]
    assert again.markers() == [(0, {"0": 3, "1": 0, "2": 0}), (1, {"0": 4, "1": 0, "2": 0})]


@pytest.mark.parametrize(
    ("last_marker", "commit_id", "end_offset"),
    [
        pytest.param((4, {0: 7}), 4, 8, id="the same batch with other messages"),
        pytest.param((4, {0: 7}), 3, 6, id="an earlier batch, because the checkpoint is an older copy"),
        pytest.param((4, {0: 7}), 6, 9, id="a batch too far on, because the table is an older copy"),
        pytest.param(None, 3, 9, id="a later batch, and an empty table"),
    ],
)
def test_a_checkpoint_that_does_not_continue_the_table_is_refused(
    tmp_path: Path, last_marker: tuple[int, dict[int, int]] | None, commit_id: int, end_offset: int
) -> None:
    desk = Desk(tmp_path, last_marker)
    with pytest.raises(CheckpointDivergedError, match=f"^Batch {commit_id} of .* Delete the checkpoint"):
        desk.commit(commit_id, output([row(), answer(1)], end_offset=end_offset))
    assert (desk.rows(), desk.told()) == ([], [])


@pytest.mark.parametrize("partition", [-1, 4, 2**31 - 1])
def test_an_answer_to_nowhere_is_counted(desk: Desk, partition: int) -> None:
    desk.commit(0, output([answer(1, partition), answer(2)]))
    assert desk.told() == [2]
    assert desk.metrics.unanswerable_responses == 1


@pytest.mark.parametrize(
    ("size", "topic_config", "error_code"),
    [
        pytest.param(2_000_000, {}, 0, id="larger than Kafka's own bound, in a topic as the processor makes it"),
        pytest.param(17_000_000, {}, 10, id="larger than what the processor's topic takes"),
        pytest.param(2_000_000, {"max.message.bytes": "1048588"}, 10, id="in a topic that was made with Kafka's own"),
    ],
)
def test_an_answer_that_does_not_fit_is_replaced_by_an_error(
    desk: Desk, size: int, topic_config: dict[str, str], error_code: int
) -> None:
    if topic_config:
        desk.log.delete_topic("__share_responses")
        desk.log.create_topic("__share_responses", 4, topic_config)
    large = ResponseEnvelope(
        api_key=ApiKey.SHARE_FETCH,
        correlation_id=1,
        group_id=GROUP_ID,
        member_id="member",
        body={"error_message": "x" * size},
    )
    desk.commit(0, output([row(), Respond(0, large), answer(2)]))
    assert desk.told() == [1, 2]
    (record,) = desk.log.read("__share_responses", 0, 0, 1)
    told = decoded_response(record.value)
    assert record.key == b"member"
    assert (told.group_id, told.member_id, told.api_key) == (GROUP_ID, "member", ApiKey.SHARE_FETCH)
    assert told.body.get("error_code", 0) == error_code
    assert ("Ask for less at once" in told.body["error_message"]) is bool(error_code)


def test_messages_between_actors_go_to_their_groups_partition_in_order(desk: Desk) -> None:
    groups = ["a", "b", "a", "c", "a"]
    sends = [Send(request(ApiKey.TICK, g, Tick(), correlation_id=n)) for n, g in enumerate(groups)]
    desk.commit(0, output(sends))
    for group_id in set(groups):
        records = desk.log.read("__share_requests", partition_for(group_id, 3), 0, 10)
        sent = [decoded_request(record.value) for record in records]
        expected = [number for number, name in enumerate(groups) if name == group_id]
        assert [envelope.correlation_id for envelope in sent if envelope.group_id == group_id] == expected


def test_messages_are_appended_before_answers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    topics: list[str] = []
    append_all = desk.log.append_all

    def noted(batches: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> list[int]:
        topics.extend(topic for topic, _, _ in batches)
        return append_all(batches)

    monkeypatch.setattr(desk.log, "append_all", noted)
    desk.commit(0, output([answer(1), Send(request(ApiKey.TICK, GROUP_ID, Tick())), answer(2, partition=1)]))
    assert topics == ["__share_requests", "__share_responses", "__share_responses"]


def test_a_response_topic_that_is_gone_is_made_again(desk: Desk) -> None:
    desk.log.delete_topic("__share_responses")
    identity = CheckpointIdentity("checkpoint-1", desk.log.describe_topic("__share_requests").topic_id, {})
    committer = Committer(desk.log, desk.writer, desk.config, identity, None, desk.metrics)
    committer.commit(0, [output([answer(7), Send(request(ApiKey.TICK, GROUP_ID, Tick()))])], desk.facts)
    assert desk.told() == [7]
    assert len(desk.log.read("__share_requests", partition_for(GROUP_ID, 3), 0, 10)) == 1


def test_a_request_topic_that_is_gone_is_said_to_be(desk: Desk) -> None:
    desk.log.delete_topic("__share_requests")
    with pytest.raises(UnknownTopicError, match="request topic __share_requests was deleted while"):
        desk.commit(0, output([Send(request(ApiKey.TICK, GROUP_ID, Tick()))]))


def test_a_watch_that_is_fulfilled_already_is_answered_with_its_batch(desk: Desk) -> None:
    topic_id = desk.log.create_topic("orders", 1).topic_id
    desk.log.append("orders", 0, [NewRecord(None, b"value")] * 5)
    desk.commit(0, output([WatchLog(GROUP_ID, {("orders", topic_id, 0): 2})]))
    (record,) = desk.log.read("__share_requests", partition_for(GROUP_ID, 3), 0, 10)
    assert decoded_request(record.value).api_key == ApiKey.LOG_OFFSETS


def test_everything_is_counted(desk: Desk) -> None:
    desk.commit(0, output([Undecodable(0, "not JSON"), Undecodable(1, "not JSON")], count=2), output(count=5))
    desk.commit(1, output(count=1, end_offset=2))
    metrics = desk.metrics
    assert (metrics.batches, metrics.messages, metrics.undecodable_messages) == (2, 8, 2)
    assert (metrics.repeated_batches, metrics.unanswerable_responses) == (0, 0)
    assert len(metrics.commit_seconds) == 2
