"""A share consumer with a sink in a process of its own: `python -m tests.crash.transacting_process SPECIFICATION`."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sharegroup.client.kafka_exceptions import KafkaError, KafkaException
from sharegroup.client.message import Message
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.errors import SinkError, WriteFencedError
from tests.crash.process_group import ProcessGroup

_POLLS = 3
"""Polls of one transaction: it has several writes, and parts of some."""
_FAILS_EACH = 23
"""Each of so many transactions fails in the application."""


@dataclass(frozen=True)
class Specification:
    """The work of a consumer.

    Attributes:
        folder: the site's folder.
        sink: the table.
        mode: acknowledgement mode; in explicit mode some records are rejected.
    """

    folder: str
    group_id: str
    topic: str
    client_id: str
    sink: str
    mode: str


def is_rejected(offset: int) -> bool:
    """Return True for a record that consumers in explicit mode reject."""
    return offset % 97 == 5


class TransactingProcess(ProcessGroup):
    """The process of a consumer."""

    def __init__(self, specification: Specification) -> None:
        folder = Path(specification.folder, "consumers")
        folder.mkdir(exist_ok=True)
        path = folder / f"{specification.client_id}.json"
        path.write_text(json.dumps(asdict(specification)))
        super().__init__("tests.crash.transacting_process", [str(path)], path.with_suffix(".log"))


def main(path: Path) -> None:
    """Write results until killed."""
    spec = Specification(**json.loads(path.read_text()))
    config: dict[str, object] = {
        "log.path": f"{spec.folder}/log.db",
        "group.id": spec.group_id,
        "client.id": spec.client_id,
        "sink": spec.sink,
        "share.acknowledgement.mode": spec.mode,
        "fetch.max.wait.ms": 2_500,
        "request.timeout.ms": 4_000,
        "max.poll.records": 20,
    }
    number = 0
    with ShareConsumer(config) as consumer:
        consumer.subscribe([spec.topic])
        while True:
            number += 1
            try:
                _transact(spec, consumer, is_failing=number % _FAILS_EACH == 0)
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


def _transact(spec: Specification, consumer: ShareConsumer, *, is_failing: bool) -> None:
    with consumer.transaction() as write:
        for _ in range(_POLLS):
            messages = consumer.poll(0.2)
            write.append([_row(spec, message) for message in messages if not _rejects(spec, message)])
            if spec.mode == "explicit":
                _acknowledge(spec, consumer, messages)
        if is_failing:
            raise ZeroDivisionError


def _rejects(spec: Specification, message: Message) -> bool:
    return spec.mode == "explicit" and is_rejected(message.offset() or 0)


def _acknowledge(spec: Specification, consumer: ShareConsumer, messages: Sequence[Message]) -> None:
    for message in messages:
        kind = AcknowledgeType.REJECT if _rejects(spec, message) else AcknowledgeType.ACCEPT
        consumer.acknowledge(message, kind)


def _row(spec: Specification, message: Message) -> dict[str, object]:
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "delivery_count": message.delivery_count(),
        "writer": spec.client_id,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
