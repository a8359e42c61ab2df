"""What is said of a failure that comes from the topics between members and the processor. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.config.loader import Settings, load_settings
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.spark.link_topics import ensure_topics, failure_cause

SPARKS_FAILURE = RuntimeError("Some data may have been lost because they are not available in Kafka any more")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    values = {"log.path": tmp_path / "log.db", "state.table.path": tmp_path / "s", "checkpoint.path": tmp_path / "c"}
    return load_settings(None, {}, [f"{key}={value}" for key, value in values.items()])


@pytest.fixture
def log(settings: Settings) -> Iterator[LocalLog]:
    with LocalLog(settings.processor.log_path) as log:
        yield log


def test_a_failure_with_the_request_topic_in_its_place_is_what_it_says(log: LocalLog, settings: Settings) -> None:
    topic_id = ensure_topics(log, settings.processor).topic_id
    assert failure_cause(SPARKS_FAILURE, settings, topic_id) is SPARKS_FAILURE


@pytest.mark.parametrize(("is_created_again", "words"), [(False, "was deleted while"), (True, "and created again")])
def test_a_failure_without_the_request_topic_comes_from_that(
    log: LocalLog, settings: Settings, is_created_again: bool, words: str
) -> None:
    topic_id = ensure_topics(log, settings.processor).topic_id
    log.delete_topic(settings.processor.request_topic_name)
    if is_created_again:
        ensure_topics(log, settings.processor)
    cause = failure_cause(SPARKS_FAILURE, settings, topic_id)
    assert isinstance(cause, UnknownTopicError)
    assert words in str(cause)
    assert cause.__cause__ is SPARKS_FAILURE


def test_a_failure_with_a_log_that_does_not_tell_is_what_it_says(log: LocalLog, settings: Settings) -> None:
    topic_id = ensure_topics(log, settings.processor).topic_id
    log.close()
    settings.processor.log_path.write_bytes(b"not a log")
    assert failure_cause(SPARKS_FAILURE, settings, topic_id) is SPARKS_FAILURE
