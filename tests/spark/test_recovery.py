"""What a processor starts from: the topics, the fence, the checkpoint, or the fold of the state table. No Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import ConfigurationError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.bootstrap import read_identity
from sharegroup.spark.recovery import Takeover, take_over
from sharegroup.state.maintenance import take_snapshot
from sharegroup.state.pruning import prune
from sharegroup.state.reader import StateTableReader
from tests.actor.group_harness import group_with, joined

REQUESTS = "__share_requests"
BATCH_MS = 1_767_225_700_000


class Place:
    """The folders of a processor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = LocalLog(folder / "log.db")
        self.config = ProcessorConfig(
            log_path=folder / "log.db",
            state_table_path=str(folder / "state"),
            checkpoint_path=str(folder / "checkpoint"),
            request_topic_partitions=2,
        )

    def take_over(self, **config: object) -> Takeover:
        values = {**self.config.model_dump(), **config}
        return take_over(self.log, ProcessorConfig(**values), BrokerConfig())

    def lose_the_log(self) -> None:
        self.log.close()
        for path in self.folder.glob("log.db*"):
            path.unlink()
        self.log = LocalLog(self.folder / "log.db")

    def lose_the_checkpoint(self) -> None:
        shutil.rmtree(self.folder / "checkpoint")

    def append_requests(self, count: int) -> None:
        for partition in range(2):
            self.log.append(REQUESTS, partition, [NewRecord(None, b"request")] * count)

    def rows(self, record_type: RecordType) -> list[StateRow]:
        return StateTableReader(self.config.state_table_path).rows([record_type])

    def ends(self) -> dict[int, int]:
        """End offsets of the request log."""
        return {partition: found.end_offset for partition, found in self.log.offsets(REQUESTS).items()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.log.close()


def commit(takeover: Takeover, commit_id: int, end_offsets: dict[int, int], rows: list[StateRow] | None = None) -> None:
    """A batch as the committer writes it."""
    payload = CommitMarkerPayload(checkpoint_id=takeover.identity.checkpoint_id, end_offsets=end_offsets)
    marker = StateRow(
        record_type=RecordType.COMMIT_MARKER,
        time_ms=BATCH_MS,
        commit_id=commit_id,
        payload=payload.model_dump(mode="json"),
    )
    takeover.writer.append([marker, *(row.model_copy(update={"commit_id": commit_id}) for row in rows or [])])


def rows_of_a_group() -> list[StateRow]:
    """Rows of a group with a member that holds records."""
    group = group_with(10)
    (member,) = joined(group, "member")
    assert member.fetch(max_records=4).record_count == 4
    return group.rows


def test_the_first_start_makes_everything(place: Place) -> None:
    takeover = place.take_over()
    assert place.ends() == {0: 0, 1: 0}
    assert len(place.log.offsets("__share_responses")) == place.config.response_topic_partitions
    assert takeover.writer.leader_epoch == 1
    assert (takeover.folded.groups, takeover.last_marker, takeover.is_recovery) == ({}, None, False)
    assert takeover.identity.start_offsets == {0: 0, 1: 0}
    assert takeover.identity == read_identity(Path(place.config.checkpoint_path))


def test_a_restart_goes_on_with_its_checkpoint(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 3})
    commit(first, 1, {0: 5, 1: 2}, rows_of_a_group())
    again = place.take_over()
    assert again.identity == first.identity
    assert again.last_marker == (1, {0: 5, 1: 2})
    assert again.writer.leader_epoch == 2
    assert list(again.folded.groups) == ["group-1"]
    assert not again.is_recovery
    assert place.rows(RecordType.RECOVERED) == []


def test_a_start_that_was_cut_short_before_its_first_batch_is_continued(place: Place) -> None:
    first = place.take_over()
    assert place.take_over().identity == first.identity


def test_messages_that_were_deleted_before_they_were_applied_are_passed_over(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 3, 1: 5}, rows_of_a_group())
    place.log.delete_records(REQUESTS, 0, 4)
    again = place.take_over()
    assert again.identity.checkpoint_id != first.identity.checkpoint_id
    assert again.identity.start_offsets == {0: 4, 1: 5}
    assert (again.last_marker, again.is_recovery) == (None, True)


def test_messages_that_were_deleted_after_they_were_applied_are_not_missed(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 3, 1: 5})
    place.log.delete_records(REQUESTS, 0, 3)
    assert place.take_over().identity == first.identity


def test_without_its_checkpoint_a_processor_goes_on_where_the_table_ends(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 4, 1: 2}, rows_of_a_group())
    place.lose_the_checkpoint()
    again = place.take_over()
    assert again.identity.checkpoint_id != first.identity.checkpoint_id
    assert again.identity.start_offsets == {0: 4, 1: 2}
    assert (again.last_marker, again.is_recovery) == (None, True)
    (recovered,) = place.rows(RecordType.RECOVERED)
    assert recovered.leader_epoch == 2
    assert recovered.payload["start_offsets"] == {"0": 4, "1": 2}


def test_a_recovery_that_was_cut_short_before_its_first_batch_is_done_again(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 4, 1: 2}, rows_of_a_group())
    place.lose_the_checkpoint()
    place.take_over()
    again = place.take_over()
    assert again.identity.start_offsets == {0: 4, 1: 2}
    assert again.is_recovery


def test_an_older_checkpoint_is_given_up(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 1})
    shutil.copytree(place.folder / "checkpoint", place.folder / "copy")
    place.lose_the_checkpoint()
    second = place.take_over()
    commit(second, 0, {0: 3, 1: 3})
    place.lose_the_checkpoint()
    shutil.copytree(place.folder / "copy", place.folder / "checkpoint")
    third = place.take_over()
    assert third.identity.checkpoint_id not in (first.identity.checkpoint_id, second.identity.checkpoint_id)
    assert third.identity.start_offsets == {0: 3, 1: 3}


def test_offsets_that_were_applied_do_not_come_again_after_the_log_is_lost(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 5, 1: 3}, rows_of_a_group())
    place.lose_the_log()
    again = place.take_over()
    assert place.ends() == {0: 5, 1: 3}
    assert again.identity.start_offsets == {0: 5, 1: 3}
    assert again.is_recovery


def test_requests_that_were_deleted_before_the_restart_are_not_waited_for(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 1})
    place.log.delete_records(REQUESTS, 0, 4)
    place.lose_the_checkpoint()
    assert place.take_over().identity.start_offsets == {0: 4, 1: 0}


def test_a_table_that_was_pruned_to_its_snapshot_is_enough(place: Place) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 4, 1: 2}, rows_of_a_group())
    before = place.take_over().folded.groups["group-1"]
    maintain(place.config.state_table_path)
    assert place.rows(RecordType.COMMIT_MARKER) == []
    again = place.take_over()
    assert again.last_marker == (0, {0: 4, 1: 2})
    place.lose_the_checkpoint()
    recovered = place.take_over()
    assert recovered.identity.start_offsets == {0: 4, 1: 2}
    assert recovered.folded.groups["group-1"].metadata.records() == before.metadata.records()
    (now,), (then,) = recovered.folded.groups["group-1"].partitions.values(), before.partitions.values()
    assert list(now.share_partition.runs) == list(then.share_partition.runs)


def maintain(state_table_path: str) -> None:
    """Snapshot the table, and prune all that is in the snapshot."""
    assert take_snapshot(state_table_path, BATCH_MS + 1)
    assert prune(state_table_path, 4_102_444_800_000).row_count_by_type


# Refusals.


@pytest.mark.parametrize("key", ["request.topic.partitions", "response.topic.partitions"])
def test_another_partition_count_is_refused_before_anyone_is_fenced(place: Place, key: str) -> None:
    first = place.take_over()
    with pytest.raises(ConfigurationError, match=rf"{key} is 7, but .* Set {key} to"):
        place.take_over(**{key.replace(".", "_"): 7})
    commit(first, 0, {0: 1})


@pytest.mark.parametrize("key", ["request.topic.partitions", "response.topic.partitions"])
def test_another_partition_count_is_refused_even_after_the_log_is_lost(place: Place, key: str) -> None:
    first = place.take_over()
    place.lose_the_log()
    with pytest.raises(ConfigurationError, match=rf"{key} is 7, but .* Set {key} to"):
        place.take_over(**{key.replace(".", "_"): 7})
    commit(first, 0, {0: 1})
    assert place.log.topics() == []
    place.take_over()


def test_a_request_topic_with_the_producers_time_is_refused(place: Place) -> None:
    place.log.create_topic(REQUESTS, 2)
    with pytest.raises(ConfigurationError, match=r"message.timestamp.type=LogAppendTime"):
        place.take_over()


def test_a_new_state_table_begins_with_the_whole_request_log(place: Place, tmp_path: Path) -> None:
    first = place.take_over()
    place.append_requests(5)
    commit(first, 0, {0: 4, 1: 2})
    new = place.take_over(state_table_path=str(tmp_path / "new"), checkpoint_path=str(tmp_path / "new-checkpoint"))
    assert new.identity.start_offsets == {0: 0, 1: 0}
    assert new.last_marker is None
