"""A member in a process of its own: `python -m tests.crash.member_process SPECIFICATION`, a JSON file.

It writes a ledger of its work.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sharegroup.client.group_member import GroupMember
from sharegroup.client.kafka_exceptions import KafkaError, KafkaException
from sharegroup.client.message import Message
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.core.record_state import AcknowledgeType as EngineType
from sharegroup.logs.local import LocalLog
from tests.crash import clock
from tests.crash.ledger import Acknowledgement, Delivery, LedgerWriter
from tests.crash.process_group import ProcessGroup
from tests.support.eventually import DEADLINE_S

_TYPES = {"accept": AcknowledgeType.ACCEPT, "release": AcknowledgeType.RELEASE, "reject": AcknowledgeType.REJECT}
_REQUEST_TIMEOUT_MS = 4_000
_MAX_WAIT_MS = 2_500
_HOLD_S = 0.4


@dataclass(frozen=True)
class Specification:
    """The work of a member.

    Attributes:
        folder: the site's folder.
        group_id: the share group.
        client_id: its name, and that of its ledger.
        topics: those that it subscribes to.
        role: `worker` acknowledges at once, `holder` renews its locks first.
        sink: file that a worker writes each accepted record to; none by default.
        max_poll_records: as the consumer's configuration.
        channel: configuration of a worker's log and topics; none is the embedded log of the folder.
    """

    folder: str
    group_id: str
    client_id: str
    topics: list[str]
    role: str = "worker"
    sink: str = ""
    max_poll_records: int = 100
    channel: dict[str, str] = field(default_factory=dict)

    @property
    def ledger_path(self) -> Path:
        return ledgers_folder(Path(self.folder), self.group_id) / f"{self.client_id}.jsonl"


def ledgers_folder(folder: Path, group_id: str) -> Path:
    """Where the ledgers are of all members that a group ever had."""
    return folder / "members" / group_id


class MemberProcess(ProcessGroup):
    """The process of a member."""

    def __init__(self, specification: Specification) -> None:
        self.ledger_path = specification.ledger_path
        path = self.ledger_path.with_suffix(".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(specification)))
        super().__init__("tests.crash.member_process", [str(path)], path.with_suffix(".log"))


def main(path: Path) -> None:
    """Be a member until killed."""
    spec = Specification(**json.loads(path.read_text()))
    clock.follow(Path(spec.folder))
    ledger = LedgerWriter(spec.ledger_path)
    stop = threading.Event()
    {"worker": _work, "holder": _hold}[spec.role](spec, ledger, stop)


def _work(spec: Specification, ledger: LedgerWriter, stop: threading.Event) -> None:
    """Poll, decide, commit; errors that may pass are written down."""
    config: dict[str, object] = {
        **(spec.channel or {"log.path": f"{spec.folder}/log.db"}),
        "group.id": spec.group_id,
        "client.id": spec.client_id,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": spec.max_poll_records,
        "fetch.max.wait.ms": _MAX_WAIT_MS,
        "request.timeout.ms": _REQUEST_TIMEOUT_MS,
    }
    with ShareConsumer(config) as consumer:
        consumer.subscribe(spec.topics)
        while not stop.is_set():
            try:
                messages = list(consumer.poll(timeout=0.2))
            except KafkaException as error:
                if error.args[0].fatal() or error.args[0].code() != KafkaError._TRANSPORT:
                    raise
                ledger.failed(error)
                stop.wait(0.2)
                continue
            if messages:
                ledger.delivered(map(_delivery, messages))
                _commit(spec, consumer, messages, ledger)


def _commit(spec: Specification, consumer: ShareConsumer, messages: list[Message], ledger: LedgerWriter) -> None:
    try:
        _write(spec.sink, messages)
    except OSError as error:
        ledger.failed(error)
        decisions = dict.fromkeys(map(_delivery, messages), "release")
    else:
        decisions = {delivery: _decision(delivery) for delivery in map(_delivery, messages)}
    for message in messages:
        consumer.acknowledge(message, _TYPES[decisions[_delivery(message)]])
    outcome = consumer.commit_sync(timeout=DEADLINE_S)
    errors = {(partition.topic, partition.partition): error for partition, error in outcome.items()}
    ledger.acknowledged(
        Acknowledgement(d.topic, d.partition, d.offset, kind, errors.get((d.topic, d.partition)) is None)
        for d, kind in decisions.items()
    )


def _decision(delivery: Delivery) -> str:
    if delivery.offset % 29 == 5:
        return "reject"
    return "release" if delivery.offset % 17 == 3 and delivery.delivery_count == 1 else "accept"


def _write(sink: str, messages: list[Message]) -> None:
    if sink:
        with open(sink, "ab", buffering=0) as file:
            for message in messages:
                file.write(str(message.value()).encode())
            os.fsync(file.fileno())


def _delivery(message: Message) -> Delivery:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Delivery(topic, partition, offset, message.delivery_count() or 0)


def _hold(spec: Specification, ledger: LedgerWriter, stop: threading.Event) -> None:
    """Keep each acquisition for two renewals, then accept it."""
    fetch = FetchSettings(
        max_records=spec.max_poll_records, max_wait_ms=_MAX_WAIT_MS, request_timeout_ms=_REQUEST_TIMEOUT_MS
    )
    with LocalLog(f"{spec.folder}/log.db") as log:
        member = GroupMember(log, MemberSettings(group_id=spec.group_id, client_id=spec.client_id, fetch=fetch))
        member.subscribe(spec.topics)
        while not stop.is_set():
            taken = member.next_acquisition(200)
            if taken is None:
                continue
            ledger.delivered(
                Delivery(held.topic, held.partition, offset, held.delivery_count)
                for held in taken.ranges
                for offset in range(held.first_offset, held.last_offset + 1)
            )
            for kind in (EngineType.RENEW, EngineType.RENEW, EngineType.ACCEPT):
                stop.wait(_HOLD_S)
                member.acknowledge(held.acknowledgement(kind) for held in taken.ranges)
                if not _confirmed(member, ledger):
                    break
        member.close(30_000)


def _confirmed(member: GroupMember, ledger: LedgerWriter) -> bool:
    """Note the outcome of the acknowledgements; return True if all of them took effect."""
    results = member.flush(60_000)
    ledger.acknowledged(
        Acknowledgement(
            result.topic, result.partition, offset, acknowledgement.acknowledge_type.name.lower(), result.error is None
        )
        for result in results
        for acknowledgement in result.acknowledgements
        for offset in acknowledgement.offsets
    )
    return all(result.error is None for result in results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
