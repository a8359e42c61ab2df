"""Consumers and callbacks of the tests of the share consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sharegroup.client.group_member import GroupMember
from sharegroup.client.kafka_exceptions import (
    KafkaException,
    TopicPartition,
)
from sharegroup.client.message import Messages
from sharegroup.client.read_ahead import ReadAhead
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from tests.support.eventually import WAIT_MS, eventually

ERRONEOUS_STATE = "Local: Erroneous state"
INVALID_ARGUMENT = "Local: Invalid argument or configuration"
CL_1 = TopicPartition("cl-1", 0)

Consume = Callable[..., ShareConsumer]


class Callback:
    """A commit callback that keeps its arguments."""

    def __init__(self) -> None:
        self.reports: list[tuple[dict[TopicPartition, set[int]], KafkaException | None]] = []
        self.threads: set[str] = set()

    def __call__(self, offsets: dict[TopicPartition, set[int]], exception: KafkaException | None) -> None:
        self.reports.append((offsets, exception))
        self.threads.add(threading.current_thread().name)

    @property
    def offsets(self) -> list[list[int]]:
        """The offsets of each call, sorted."""
        return [sorted(acknowledged) for offsets, _ in self.reports for acknowledged in offsets.values()]


def got(messages: Messages) -> str:
    """Runs of offsets and their delivery count, as in "0-9:d1"."""
    runs: list[list[int]] = []
    for message in messages:
        offset, count = message.offset() or 0, message.delivery_count() or 0
        if runs and runs[-1][1] == offset - 1 and runs[-1][2] == count:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset, count])
    return " ".join(f"{first}-{last}:d{count}" for first, last, count in runs)


def member_of(consumer: ShareConsumer) -> GroupMember:
    """The state that an application does not see: records that were fetched ahead, and responses."""
    return reader_of(consumer).member


def reader_of(consumer: ShareConsumer) -> ReadAhead:
    """The reader of a consumer that has subscribed, once it has joined."""
    return eventually(lambda: consumer._joining.joined, "the consumer has a member")


def fetches_ahead(consumer: ShareConsumer) -> bool:
    """Wait as a poll does; return True once records that were fetched ahead wait for it."""
    member = member_of(consumer)
    return member.wait(WAIT_MS, lambda: member.waiting_after(0) is not None)


def acknowledge_all(
    consumer: ShareConsumer, messages: Messages, ack_type: AcknowledgeType = AcknowledgeType.ACCEPT
) -> None:
    for message in messages:
        consumer.acknowledge(message, ack_type)
