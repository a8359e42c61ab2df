"""A consumer in a process that was forked: it is the other process's."""

from __future__ import annotations

import logging
import os

import pytest

from sharegroup.client.kafka_exceptions import IllegalStateException
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from tests.client.consumers import Consume
from tests.client.processor_peer import ProcessorPeer
from tests.support import processes

pytestmark = pytest.mark.slow


class Lines(logging.Handler):
    """The lines that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def close_in_fork(consumer: ShareConsumer) -> list[str]:
    lines = Lines()
    logging.getLogger("sharegroup").addHandler(lines)
    consumer.close()
    consumer.close()
    consumer.close(timeout=5)
    return [line for line in lines.lines if "forked_consumer_not_closed" in line]


def poll_in_fork(consumer: ShareConsumer) -> str:
    try:
        consumer.poll(timeout=60)
    except IllegalStateException as error:
        return str(error)
    return "no error"


def polled(consumer: ShareConsumer, count: int) -> list[int | None]:
    offsets: list[int | None] = []
    while len(offsets) < count:
        offsets += [message.offset() for message in consumer.poll(timeout=1)]
    return offsets


def test_the_close_of_a_fork_does_nothing_and_says_so_once(
    consume: Consume, processor: ProcessorPeer, log: LocalLog
) -> None:
    consumer = consume("cl-1")
    assert polled(consumer, 10) == list(range(10))
    lines = processes.in_fork(close_in_fork, consumer)
    assert len(lines) == 1
    assert f"process={os.getpid()}" in lines[0]
    # The member's lock and its records are what they were.
    locks = log.member_locks()
    assert locks.ended() == []
    assert list(log.path.with_name(log.path.name + ".members").iterdir()) != []
    locks.close()
    assert polled(consumer, 10) == list(range(10, 20))


def test_a_poll_of_a_fork_names_the_process_of_the_consumer(consume: Consume) -> None:
    consumer = consume("cl-1")
    polled(consumer, 10)
    assert f"belongs to process {os.getpid()}" in processes.in_fork(poll_in_fork, consumer)
    assert polled(consumer, 10) == list(range(10, 20))
