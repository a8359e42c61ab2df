"""A processor with everything around it: log, state table, topics, groups and members."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sharegroup.client.admin import AdminClient
from sharegroup.client.message import Message
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.loader import Settings
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.config.table_location import location_of
from sharegroup.errors import InvalidRequestError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, decoded_request, decoded_response
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedGroup, FoldedPartition, fold
from sharegroup.state.reader import StateTableReader
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.processor_thread import ProcessorThread

T = TypeVar("T")

BROKER = BrokerConfig(
    group_share_min_record_lock_duration_ms=1_000,
    group_share_min_heartbeat_interval_ms=100,
    group_share_min_session_timeout_ms=1_000,
    group_share_assignors="all",
)
REQUEST_PARTITIONS = 2
REQUESTS = "__share_requests"
RESPONSES = "__share_responses"


@dataclass
class Site:
    """One processor's folders, and the processor while it runs.

    Attributes:
        folder: where everything is.
        groups: group id → the group's own configuration.
        metrics_port: where the processor shows its metrics; 0 is nowhere.
        broker: fields of the broker's configuration that differ from `BROKER`.
        config: more fields of the processor's configuration; a test may change them between two processors.
        table: address of the state table; a folder beside the log when it is empty.
        commit_interval_ms: least time between two commits.
    """

    folder: Path
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    metrics_port: int = 0
    broker: Mapping[str, object] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    table: str = ""
    commit_interval_ms: int = 0

    def __post_init__(self) -> None:
        self.log: Log = LocalLog(self.log_path)
        self.processor: ProcessorThread | None = None
        self._names = itertools.count()

    @property
    def log_path(self) -> Path:
        return self.folder / "log.db"

    @property
    def state_path(self) -> Path:
        return self.folder / "state"

    @property
    def table_path(self) -> str:
        return self.table or str(self.state_path)

    @property
    def checkpoint_path(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def settings(self) -> Settings:
        processor = ProcessorConfig(
            log_path=self.log_path,
            state_table_path=self.table_path,
            state_table_storage=location_of(self.table_path).options,
            processor_commit_interval_ms=self.commit_interval_ms,
            checkpoint_path=str(self.checkpoint_path),
            request_topic_partitions=REQUEST_PARTITIONS,
            metrics_port=self.metrics_port,
        ).model_copy(update=dict(self.config))
        return Settings(processor, BROKER.model_copy(update=dict(self.broker)), self.groups, {}, {})

    # The processor.

    def start(self) -> ProcessorThread:
        self.processor = ProcessorThread(self.settings)
        self.processor.start()
        return self.processor

    def stop(self) -> None:
        if self.processor is not None:
            self.processor.stop()
        self.processor = None

    def close(self) -> None:
        self.stop()
        self.log.close()

    @contextmanager
    def running(self) -> Iterator[ProcessorThread]:
        """A processor for a while."""
        processor = self.start()
        try:
            yield processor
        finally:
            self.stop()

    def running_processor(self) -> ProcessorThread:
        """The running processor."""
        assert self.processor is not None
        return self.processor

    def until(self, probe: Callable[[], T | None], what: str) -> T:
        """As `eventually`, but a processor that failed ends the wait with its failure."""

        def checked() -> T | None:
            if self.processor is not None:
                self.processor.raise_failure()
            return probe()

        return eventually(checked, what)

    # Topics, groups and members.

    def new_name(self, stem: str) -> str:
        """A name that nobody else uses here."""
        return f"{stem}-{next(self._names)}"

    def new_topic(self, partition_count: int = 1, record_count: int = 0) -> str:
        """A topic with this many records in each partition."""
        topic = self.new_name("topic")
        self.log.create_topic(topic, partition_count)
        for partition in range(partition_count):
            self.produce(topic, partition, record_count)
        return topic

    def produce(self, topic: str, partition: int, count: int) -> None:
        first = self.log.offsets(topic)[partition].end_offset
        values = [json.dumps({"partition": partition, "offset": o}).encode() for o in range(first, first + count)]
        self.log.append(topic, partition, [NewRecord(b"key", value) for value in values])

    def new_group(self, group_id: str = "", **config: str) -> str:
        """A group that starts at the earliest offset, with `share_record_lock_duration_ms="1000"` and so on."""
        group_id = group_id or self.new_name("group")
        wanted = {"share_auto_offset_reset": "earliest", **config}
        self.admin.alter_group_config(
            group_id, {name.replace("_", "."): value for name, value in wanted.items()}, timeout=DEADLINE_S
        )
        return group_id

    @property
    def admin(self) -> AdminClient:
        return AdminClient(self.log)

    def consumer(self, group_id: str, topic: str, **config: object) -> ShareConsumer:
        """A subscribed consumer; `max_poll_records=10` and so on."""
        wanted = {"log_path": str(self.log_path), "group_id": group_id, "max_poll_records": 500, **config}
        consumer = ShareConsumer({name.replace("_", "."): value for name, value in wanted.items()})
        consumer.subscribe([topic])
        return consumer

    def poll(self, consumer: ShareConsumer, count: int) -> list[Message]:
        """Poll until there are this many messages."""
        messages: list[Message] = []

        def has_enough() -> bool:
            messages.extend(consumer.poll(timeout=0.2))
            return len(messages) >= count

        self.until(has_enough, f"{count} messages")
        return messages

    # What is in the logs and in the state table.

    @property
    def reader(self) -> StateTableReader:
        return StateTableReader(self.table_path)

    def rows(self, group_id: str | None = None, *record_types: RecordType) -> list[StateRow]:
        return self.reader.rows(record_types or None, group_id)

    def folded(self, group_id: str) -> FoldedGroup:
        """The group as the state table has it."""
        return fold(self.rows(group_id)).groups.get(group_id, FoldedGroup(group_id))

    def share_partition(self, group_id: str, partition: int = 0) -> FoldedPartition | None:
        """A share-partition of a group with one topic, as the state table has it."""
        partitions = self.folded(group_id).partitions
        return next((folded for (_, index), folded in partitions.items() if index == partition), None)

    def is_drained(self, group_id: str, topic: str) -> bool:
        """Return True if every record of the topic is finished."""
        starts = {
            folded.partition: folded.share_partition.start_offset
            for folded in self.folded(group_id).partitions.values()
        }
        return starts == {partition: offsets.end_offset for partition, offsets in self.log.offsets(topic).items()}

    def drain(self, record_count: int = 20) -> None:
        """Have a new group take and accept all records of a new topic."""
        topic = self.new_topic(record_count=record_count)
        group_id = self.new_group()
        with self.consumer(group_id, topic) as consumer:
            assert len(self.poll(consumer, record_count)) == record_count
            consumer.commit_sync()
            self.until(lambda: self.is_drained(group_id, topic), "the topic is drained")

    def append_request(self, value: bytes | None, partition: int = 0) -> None:
        """Append bytes to the request log."""
        self.log.append(REQUESTS, partition, [NewRecord(None, value)])

    def requests(self, group_id: str, api_key: ApiKey) -> list[RequestEnvelope]:
        """The messages of a kind in the group's partition of the request log, in order."""
        partition = partition_for(group_id, REQUEST_PARTITIONS)
        records = self.log.read(REQUESTS, partition, 0, self.log.offsets(REQUESTS)[partition].end_offset)
        envelopes = [decoded_request(record.value) for record in records if _is_envelope(record.value)]
        return [e for e in envelopes if (e.group_id, e.api_key) == (group_id, api_key)]

    def responses(self, group_id: str) -> list[ResponseEnvelope]:
        """All responses of a group, by partition of the response log."""
        return [response for response in self.all_responses() if response.group_id == group_id]

    def all_responses(self) -> list[ResponseEnvelope]:
        """The responses of all groups, by partition of the response log."""
        return [
            decoded_response(record.value)
            for partition, offsets in self.log.offsets(RESPONSES).items()
            for record in self.log.read(RESPONSES, partition, offsets.start_offset, offsets.end_offset)
        ]


def _is_envelope(value: bytes | None) -> bool:
    try:
        decoded_request(value)
    except InvalidRequestError:
        return False
    return True


def places(messages: Iterable[Message]) -> set[tuple[int | None, int | None]]:
    """(partition, offset) of messages."""
    return {(message.partition(), message.offset()) for message in messages}
