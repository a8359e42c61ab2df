"""An administrator: changes of configuration, of start offsets, and of topics, at any time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from sharegroup.actor.sink_checks import EXACTLY_ONCE_KEY
from sharegroup.core.record_state import RecordState
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import LogRecord, NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    DeletedTopic,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    RedrivenPartition,
    RedrivenRange,
    RedriveShareGroupRecordsRequest,
)
from sharegroup.protocol.group_messages import AlterGroupConfigRequest, ResumeShareGroupRequest
from sharegroup.protocol.imported_batches import ImportedBatch
from sharegroup.protocol.messages import Message, decoded_response, request
from tests.simulation.drains import DRAIN
from tests.simulation.ledger import Ledger
from tests.simulation.log import StoredLog
from tests.simulation.member import REQUEST_TOPIC, RESPONSE_TOPIC, SimulatedMember
from tests.simulation.world import World

DEAD_LETTER_TOPICS = ("dlq-0", "dlq-1")
_MEMBER_ID = "administrator"
_TRIES = 10
_CLOSED_MS = 9_000
"""How long nobody joins a group whose offsets are to be reset: until the members that died are removed."""
_VALUES: dict[str, tuple[str, ...]] = {
    "share.record.lock.duration.ms": ("1000", "2000", "5000"),
    "share.delivery.count.limit": ("2", "3", "5"),
    "share.partition.max.record.locks": ("100", "2000"),
    "share.renew.acknowledge.enable": ("true", "false"),
    "share.isolation.level": ("read_committed", "read_uncommitted"),
    "share.redelivery.backoff.ms": ("0", "400"),
    "share.auto.offset.reset": ("earliest", "latest"),
    DRAIN: ("true", "false"),
    "errors.deadletterqueue.topic.name": ("", *DEAD_LETTER_TOPICS),
}

_IMPORTED = (
    (RecordState.AVAILABLE, 1),
    (RecordState.ACKNOWLEDGED, 3),
    (RecordState.ARCHIVING, 3),
    (RecordState.AVAILABLE, 0),
    (RecordState.ARCHIVED, 3),
)
"""States of the imported batches, and their highest delivery counts."""


class Administrator:
    """Sends requests until each has its response, or was tried often enough.

    Args:
        world: time.
        log: the request and the record log.
        ledger: learns which limits may be in force.
        topics: names of the topics of the record log.
        members: returns the members of a group that are there.
        changed: called when a topic changed.
    """

    def __init__(
        self,
        world: World,
        log: StoredLog,
        ledger: Ledger,
        topics: list[str],
        members: Callable[[str], list[SimulatedMember]],
        changed: Callable[[], None],
    ) -> None:
        self._world = world
        self._log = log
        self.topics = topics
        self._ledger = ledger
        self._members = members
        self._changed = changed
        self._numbers = itertools.count(1)
        self._pending: set[int] = set()
        self._about_drains: set[int] = set()
        self._closed_until_ms: dict[str, int] = {}
        log.topic(RESPONSE_TOPIC).observers.append(self._note_response)

    def change_config(self, group_id: str) -> None:
        """Set some key of a group to some value."""
        key = self._world.random.choice(sorted(_VALUES))
        value = self._world.random.choice(_VALUES[key])
        self.configure(group_id, {key: value})

    def configure(self, group_id: str, values: dict[str, str]) -> None:
        """Set keys of a group."""
        if group_id in self._ledger.sinks:
            # A group that was deleted begins again with its first configuration.
            values = {**values, EXACTLY_ONCE_KEY: "true"}
        limit, duration_ms = values.get("share.delivery.count.limit"), values.get("share.record.lock.duration.ms")
        self._ledger.may_have(int(limit) if limit else None, int(duration_ms) if duration_ms else None)
        self._send(group_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, AlterGroupConfigRequest(set=values))

    def resume(self, group_id: str) -> None:
        """Let a group go on if it is quarantined."""
        self._send(group_id, ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest())

    def is_open(self, group_id: str) -> bool:
        """Return True if members may join a group."""
        return self._world.now_ms >= self._closed_until_ms.get(group_id, 0)

    def reset_offsets(self, group_id: str) -> None:
        """Alter or delete start offsets, or delete the group; its members are gone, perhaps with what they hold."""
        self._closed_until_ms[group_id] = self._world.now_ms + _CLOSED_MS
        for member in self._members(group_id):
            if self._world.happens(0.2):
                member.die()
            else:
                member.close(keeps_locks=self._world.happens(0.7))
        random = self._world.random
        topic = random.choice(self.topics)
        choice = random.random()
        if choice < 0.5:
            imports = self._world.happens(0.5)
            partitions = [
                self._imported(group_id, topic, index)
                if imports
                else AlteredPartition(partition_index=index, start_offset=random.randint(0, 40))
                for index in range(random.randint(1, 3))
            ]
            body: Message = AlterShareGroupOffsetsRequest(
                topics=[AlteredTopic(topic_name=topic, partitions=partitions)]
            )
            self._send(group_id, ApiKey.ALTER_SHARE_GROUP_OFFSETS, body)
        elif choice < 0.85:
            body = DeleteShareGroupOffsetsRequest(topics=[DeletedTopic(topic_name=topic)])
            self._send(group_id, ApiKey.DELETE_SHARE_GROUP_OFFSETS, body)
        else:
            self._send(group_id, ApiKey.DELETE_GROUPS, DeleteGroupsRequest())

    def redrive(self, group_id: str) -> None:
        """Ask for a record that was given up; it may be below the start offset by now, or not archived yet."""
        archived = self._ledger.administered.archived(group_id)
        if not archived:
            return
        record_key = max(archived, key=lambda key: key[3])
        self._ledger.administered.may_redrive(record_key)
        _, topic_id, partition, offset = record_key
        ranges = [RedrivenRange(first_offset=offset, last_offset=offset)]
        partitions = [RedrivenPartition(topic_id=topic_id, partition_index=partition, ranges=ranges)]
        body = RedriveShareGroupRecordsRequest(partitions=partitions, reason="repaired")
        self._send(group_id, ApiKey.REDRIVE_SHARE_GROUP_RECORDS, body)

    def _imported(self, group_id: str, topic: str, partition: int) -> AlteredPartition:
        """Begin with records that another system has delivered."""
        random = self._world.random
        start_offset = next_offset = random.randint(0, 20)
        batches: list[ImportedBatch] = []
        for state, highest_count in _IMPORTED:
            next_offset += random.randint(0, 3)
            last_offset = next_offset + random.randint(0, 4)
            batches.append((next_offset, last_offset, state, random.randint(0, highest_count)))
            next_offset = last_offset + 1
        self._ledger.administered.may_import(group_id, topic, partition, batches)
        return AlteredPartition(partition_index=partition, start_offset=start_offset, state_batches=batches)

    def change_topic(self) -> None:
        """Let a topic grow, or delete it and create it again."""
        random = self._world.random
        name = random.choice(self.topics)
        topic = self._log.topics.get(name)
        if topic is None:
            return
        if random.random() < 0.4 and topic.description.partition_count < 4:
            self._world.trace("topic", name, "grows")
            self._log.add_partition(name)
        else:
            self._world.trace("topic", name, "is deleted")
            self._log.delete(name)
            self._world.after(20, random.choice((200, 6_000)), lambda: self._create(name))
        self._changed()

    def _create(self, name: str) -> None:
        self._world.trace("topic", name, "is created again")
        self._log.create(name, self._world.random.randint(1, 3), {})
        self._changed()

    def _send(self, group_id: str, api_key: ApiKey, body: Message) -> None:
        number = next(self._numbers)
        self._world.trace("the administrator sends", api_key.name, number, group_id, body)
        self._pending.add(number)
        if isinstance(body, DeleteGroupsRequest) or (isinstance(body, AlterGroupConfigRequest) and DRAIN in body.set):
            self._about_drains.add(number)
        partition = partition_for(group_id, len(self._log.topic(REQUEST_TOPIC).end_offsets))
        reply_partition = partition_for(_MEMBER_ID, len(self._log.topic(RESPONSE_TOPIC).end_offsets))
        envelope = request(
            api_key, group_id, body, member_id=_MEMBER_ID, correlation_id=number, reply_partition=reply_partition
        )
        self._try(group_id, partition, number, envelope.encoded(), _TRIES)

    def _try(self, group_id: str, partition: int, number: int, value: bytes, tries: int) -> None:
        if not tries or number not in self._pending:
            return
        if not self._log.is_away:
            if number in self._about_drains:
                self._ledger.drains.requested(
                    group_id, partition, self._log.topic(REQUEST_TOPIC).end_offsets[partition]
                )
            self._log.append(REQUEST_TOPIC, partition, [NewRecord(group_id.encode(), value)])
        self._world.after(500, 2_000, lambda: self._try(group_id, partition, number, value, tries - 1))

    def _note_response(self, record: LogRecord) -> None:
        if record.key != _MEMBER_ID.encode():
            return
        response = decoded_response(record.value)
        if response.correlation_id in self._pending:
            self._world.trace("the administrator gets a response", response.correlation_id, response.body)
        # Members that are gone leave their group after a while only, and a quarantined group goes on again.
        if not response.body.get("error_code"):
            self._pending.discard(response.correlation_id)
