"""A share consumer with a sink in a process of its own: `python -m tests.crash.transacting_process SPECIFICATION`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from sharegroup.client.kafka_exceptions import KafkaError, KafkaException
from sharegroup.client.message import Message
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.errors import SinkError, WriteFencedError
from tests.crash.sink_members import EXPLICIT, Specification, is_rejected, load_specification

_POLLS = 3
"""Polls of one transaction: it has several writes, and parts of some."""
_FAILS_EACH = 23
"""In explicit mode each of so many transactions fails in the application."""


def main(spec: Specification) -> None:
    """Write results until killed."""
    config: dict[str, object] = {
        **spec.channel,
        "group.id": spec.group_id,
        "client.id": spec.client_id,
        "sink": spec.sink,
        "share.acknowledgement.mode": spec.mode,
        "fetch.max.wait.ms": 2_500,
        "request.timeout.ms": 4_000,
        "max.poll.records": 20,
    }
    number = 0
    with _opened(config) as consumer:
        consumer.subscribe([spec.topic])
        while True:
            number += 1
            try:
                _transact(spec, consumer, is_failing=spec.mode == EXPLICIT and number % _FAILS_EACH == 0)
            except WriteFencedError as error:
                print("fenced", error, flush=True)
            except SinkError as error:
                print("unknown", error, flush=True)
            except KafkaException as error:
                if error.args[0].fatal() or error.args[0].code() != KafkaError._TRANSPORT:
                    raise
                threading.Event().wait(0.2)
            except ZeroDivisionError:
                print("failed", flush=True)


def _opened(config: dict[str, object]) -> ShareConsumer:
    """Return a consumer, once its sink is there."""
    while True:
        try:
            return ShareConsumer(config)
        except SinkError as error:
            print("refused", error, flush=True)
            threading.Event().wait(0.2)


def _transact(spec: Specification, consumer: ShareConsumer, *, is_failing: bool) -> None:
    with consumer.transaction() as write:
        for _ in range(_POLLS):
            messages = consumer.poll(0.2)
            write.append([_row(spec, message) for message in messages if not _rejects(spec, message)])
            if spec.mode == EXPLICIT:
                _acknowledge(spec, consumer, messages)
        if is_failing:
            raise ZeroDivisionError


def _rejects(spec: Specification, message: Message) -> bool:
    return spec.mode == EXPLICIT and is_rejected(message.offset() or 0)


def _acknowledge(spec: Specification, consumer: ShareConsumer, messages: Sequence[Message]) -> None:
    for message in messages:
        kind = AcknowledgeType.REJECT if _rejects(spec, message) else AcknowledgeType.ACCEPT
        consumer.acknowledge(message, kind)


def _row(spec: Specification, message: Message) -> dict[str, object]:
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "size": len(str(message.value())),
        "delivery_count": message.delivery_count(),
        "writer": spec.client_id,
    }


if __name__ == "__main__":
    main(load_specification(sys.argv[1]))
