"""The request and response topics: creation and checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ConfigurationError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.missing_topic import MISSING_LOOKUPS, MISSING_S
from sharegroup.logs.port import TopicDescription
from sharegroup.processor.topics import check_request_topic, ensure_response_topic, ensure_topics


@pytest.fixture
def config(tmp_path: Path) -> ProcessorConfig:
    return ProcessorConfig(
        log_path=tmp_path / "log.db", state_table_path=str(tmp_path / "s"), checkpoint_path=str(tmp_path / "c")
    )


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log.db") as log:
        yield log


def test_missing_topics_are_created_and_stay(log: LocalLog, config: ProcessorConfig) -> None:
    topic = ensure_topics(log, config)
    assert (topic.name, topic.partition_count) == ("__share_requests", 1)
    assert topic.config["message.timestamp.type"] == "LogAppendTime"
    assert log.describe_topic("__share_responses").partition_count == 4
    assert ensure_topics(log, config) == topic


def test_another_partition_count_is_refused(log: LocalLog, config: ProcessorConfig) -> None:
    log.create_topic("__share_requests", 5)
    with pytest.raises(ConfigurationError, match=r"request\.topic\.partitions is 1, but .* has 5 partitions"):
        ensure_topics(log, config)


def test_a_topic_that_producers_stamp_is_refused(log: LocalLog, config: ProcessorConfig) -> None:
    log.create_topic("__share_requests", 1, {"message.timestamp.type": "CreateTime"})
    with pytest.raises(ConfigurationError, match=r"message\.timestamp\.type=CreateTime, but LogAppendTime is needed"):
        ensure_topics(log, config)


def test_a_deleted_response_topic_is_created_again(log: LocalLog, config: ProcessorConfig) -> None:
    ensure_topics(log, config)
    log.delete_topic(config.response_topic_name)
    ensure_response_topic(log, config)
    assert log.describe_topic(config.response_topic_name).partition_count == 4


class StaleLog(LocalLog):
    """A log whose next lookups of a topic do not find it, as at a broker whose metadata lags."""

    stale_lookups = 0

    def describe_topic(self, name: str) -> TopicDescription:
        if self.stale_lookups:
            self.stale_lookups -= 1
            raise UnknownTopicError(f"There is no topic {name}.")
        return super().describe_topic(name)


def test_the_request_topic_that_is_still_there_passes(log: LocalLog, config: ProcessorConfig) -> None:
    check_request_topic(log, config, ensure_topics(log, config).topic_id)


def test_lookups_that_miss_the_request_topic_prove_nothing_before_some_in_a_row_over_seconds(
    tmp_path: Path, config: ProcessorConfig
) -> None:
    pauses_s: list[float] = []
    with StaleLog(tmp_path / "log.db") as log:
        topic_id = ensure_topics(log, config).topic_id
        for _ in range(2):
            log.stale_lookups = MISSING_LOOKUPS - 1
            check_request_topic(log, config, topic_id, pauses_s.append)
        assert len(pauses_s) == 2 * (MISSING_LOOKUPS - 1)
        pauses_s.clear()
        log.stale_lookups = 1_000
        with pytest.raises(UnknownTopicError, match="was deleted while"):
            check_request_topic(log, config, topic_id, pauses_s.append)
    assert sum(pauses_s) >= MISSING_S


def test_another_request_topic_of_the_name_is_certain_at_once(log: LocalLog, config: ProcessorConfig) -> None:
    topic_id = ensure_topics(log, config).topic_id
    log.delete_topic(config.request_topic_name)
    ensure_topics(log, config)
    pauses_s: list[float] = []
    with pytest.raises(UnknownTopicError, match="and created again"):
        check_request_topic(log, config, topic_id, pauses_s.append)
    assert pauses_s == []


def test_a_request_topic_that_is_created_again_while_it_is_missed_is_another_one(
    log: LocalLog, config: ProcessorConfig
) -> None:
    topic_id = ensure_topics(log, config).topic_id
    log.delete_topic(config.request_topic_name)

    def create_again(_: float) -> None:
        ensure_topics(log, config)

    with pytest.raises(UnknownTopicError, match="and created again"):
        check_request_topic(log, config, topic_id, create_again)
