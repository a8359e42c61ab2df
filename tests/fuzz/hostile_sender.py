"""A sender of requests that are almost right, quite wrong, or somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sharegroup.actor.decoding import MAX_MESSAGE_BYTES
from sharegroup.logs.partitioner import partition_for
from sharegroup.protocol.api_key import ApiKey
from tests.fuzz.mutation import damaged, mutated, to_bytes

Body = dict[str, Any]

LEADER_EPOCH = 1
"""Epoch of the processor that is attacked: the first one."""
STRANGERS = [f"stranger-{number}" for number in range(12)]
REQUESTS = (
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.RESUME_SHARE_GROUP,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.LIST_GROUPS,
    ApiKey.STANDBY_PROBE,
)
"""Kinds that get a response."""
INTERNAL_KEYS = (
    ApiKey.LOG_OFFSETS,
    ApiKey.DLQ_WRITTEN,
    ApiKey.DLQ_STATUS_CHANGED,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.SHARE_GROUP_STATE_INITIALIZED,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.SHARE_GROUP_STATE_DELETED,
    ApiKey.SHARE_GROUP_CONFIG_CHANGED,
    ApiKey.TICK,
)
"""Kinds that only the processor itself should send."""
ADMINISTRATION = (
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_GROUPS,
    ApiKey.PAUSE_SHARE_GROUP,
    ApiKey.REDRIVE_SHARE_GROUP_RECORDS,
)
"""Kinds that take from a group what it has done; most wait for responses of the log and of the leader."""
TRANSIENT = (
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.RESUME_SHARE_GROUP,
    ApiKey.TICK,
    ApiKey.LOG_OFFSETS,
    ApiKey.DLQ_WRITTEN,
    ApiKey.SHARE_GROUP_STATE_INITIALIZED,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.SHARE_GROUP_STATE_DELETED,
)
"""Kinds of which nothing is left in the long run in a group that nobody has."""

_CONFIG = {
    "share.auto.offset.reset": ["earliest", "latest", "by_duration:P1D", "by_duration:P9999999999D", "soon"],
    "share.record.lock.duration.ms": ["2000", "0", "-1", "1e3", "99999999999999999999"],
    "share.delivery.count.limit": ["5", "10", "2", "0", "11"],
    "share.isolation.level": ["read_committed", "read_uncommitted", "chaos"],
    "share.partition.max.record.locks": ["100", "4000", "5"],
    "errors.deadletterqueue.topic.name": ["no topic", ""],
    "no.such.key": ["1"],
}


@dataclass
class Victim:
    """The knowledge of the sender about a group.

    Attributes:
        topic: what its members read.
        topic_id: the topic's id.
        end_offset: about where its partitions end.
        member_epochs: member id → epoch, of the members whose name the sender takes now and then.
    """

    group_id: str
    topic: str
    topic_id: str
    end_offset: int = 0
    member_epochs: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attack:
    """A record for the request log.

    Attributes:
        partition: where it goes.
        asked: (member id, correlation id) that must get a response, once for each time at most; None when nothing is
            promised.
    """

    value: bytes | None
    partition: int
    asked: tuple[str, int] | None = None


class HostileSender:
    """Makes one attack after the other.

    Args:
        random: what it chooses by.
        target: the group that it attacks as a member would.
        outlaw: the group in which it plays the processor, too.
        partition_count: partitions of the request log.
    """

    def __init__(self, random: Random, target: Victim, outlaw: Victim, partition_count: int) -> None:
        self._random = random
        self._target = target
        self._outlaw = outlaw
        self._partition_count = partition_count
        self._correlation_id = 1_000_000
        self._session_epochs: dict[str, int] = {}
        self._sent: list[Attack] = []
        self._bodies: dict[int, Callable[[Victim, str], Body]] = {
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
            ApiKey.SHARE_GROUP_HEARTBEAT: self._heartbeat,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter_config,
            ApiKey.PAUSE_SHARE_GROUP: lambda group, member_id: {"reason": "x" * self._random.choice([0, 9, 2_000])},
            ApiKey.RESUME_SHARE_GROUP: lambda group, member_id: {},
            ApiKey.SHARE_GROUP_DESCRIBE: lambda group, member_id: {},
            ApiKey.DESCRIBE_CONFIGS: lambda group, member_id: {},
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda group, member_id: {"include_runs": True},
            ApiKey.LIST_GROUPS: lambda group, member_id: {},
            ApiKey.STANDBY_PROBE: lambda group, member_id: {},
            ApiKey.TICK: lambda group, member_id: {},
            ApiKey.LOG_OFFSETS: self._log_offsets,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: self._state_topics,
            ApiKey.SHARE_GROUP_STATE_INITIALIZED: self._state_topics,
            ApiKey.DELETE_SHARE_GROUP_STATE: self._topic_ids,
            ApiKey.SHARE_GROUP_STATE_DELETED: self._topic_ids,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self._alter_offsets,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda group, member_id: {"topics": [{"topic_name": group.topic}]},
            ApiKey.DELETE_GROUPS: lambda group, member_id: {},
            ApiKey.SHARE_GROUP_CONFIG_CHANGED: lambda group, member_id: {"overrides": self._config()},
            ApiKey.REDRIVE_SHARE_GROUP_RECORDS: self._redrive,
            ApiKey.DLQ_WRITTEN: self._dlq_written,
            ApiKey.DLQ_STATUS_CHANGED: lambda group, member_id: {"failure": self._random.choice(["", "no topic"])},
        }

    def attack(self) -> Attack:
        """The next record."""
        attack = self._random.choices(
            [
                self._request,
                self._broken_body,
                self._broken_envelope,
                self._bytes,
                self._replay,
                self._misplaced,
                self._to_nobody,
            ],
            [6, 6, 4, 3, 2, 1, 2],
        )[0]()
        self._sent.append(attack)
        del self._sent[:-500]
        return attack

    def _request(self) -> Attack:
        """A request that any member might send."""
        envelope = self._envelope(self._random.choice([self._target, self._target, self._outlaw]))
        return self._addressed(envelope)

    def _broken_body(self) -> Attack:
        envelope = self._envelope(self._random.choice([self._target, self._outlaw]))
        envelope["body"] = mutated([envelope["body"]], self._random, self._random.choice([1, 1, 2, 5]))[:1]
        envelope["body"] = envelope["body"][0] if envelope["body"] else None
        return self._addressed(envelope)

    def _broken_envelope(self) -> Attack:
        envelope = mutated(self._envelope(self._target), self._random, self._random.choice([1, 1, 2]))
        if isinstance(envelope, dict) and envelope.get("api_key") in (*INTERNAL_KEYS, *ADMINISTRATION):
            envelope["group_id"] = self._outlaw.group_id
        if isinstance(envelope, dict) and envelope.get("api_key") == ApiKey.PROCESSOR_STARTED:
            # The announcement of a later processor does stop this one.
            envelope["leader_epoch"] = LEADER_EPOCH
        return Attack(to_bytes(envelope, self._random), self._partition(envelope))

    def _bytes(self) -> Attack:
        """Bytes that are hardly a message; a fact among them goes to the outlaws."""
        random = self._random
        if random.random() < 0.1:
            nothing = [None, b"", b"null", b"[]", b"5", b'"text"', b"[" * 3_000, random.randbytes(50), b"x" * 200_000]
            return Attack(random.choice(nothing), random.randrange(self._partition_count))
        value = damaged(to_bytes(self._envelope(self._outlaw), random), random)
        return Attack(value, partition_for(self._outlaw.group_id, self._partition_count))

    def _replay(self) -> Attack:
        """Send a message of somebody once more."""
        if not self._sent:
            return self._request()
        again = self._random.choice(self._sent)
        return again

    def _misplaced(self) -> Attack:
        """A good request in the partition of other groups."""
        right = self._addressed(self._envelope(self._target))
        return Attack(right.value, (right.partition + 1) % self._partition_count, right.asked)

    def _to_nobody(self) -> Attack:
        """A good message for a group that nobody has; it leaves nothing behind in the long run."""
        envelope = self._envelope(self._outlaw, TRANSIENT)
        envelope["group_id"] = f"nobody-{self._random.randrange(10**6)}"
        return self._addressed(envelope)

    def _addressed(self, envelope: dict[str, Any]) -> Attack:
        value = to_bytes(envelope, self._random)
        gets_response = envelope["api_key"] in REQUESTS and envelope["reply_partition"] >= 0
        address = (envelope["member_id"], envelope["correlation_id"])
        return Attack(
            value, self._partition(envelope), address if gets_response and len(value) <= MAX_MESSAGE_BYTES else None
        )

    def _partition(self, envelope: Any) -> int:
        group_id = envelope.get("group_id") if isinstance(envelope, dict) else None
        is_text = isinstance(group_id, str) and group_id.isascii()
        return partition_for(group_id if is_text else "", self._partition_count)

    def _envelope(self, group: Victim, api_keys: Sequence[ApiKey] = ()) -> dict[str, Any]:
        random = self._random
        # Far apart, so that a changed one is not the next one.
        self._correlation_id += 10
        forbidden = (*INTERNAL_KEYS, *ADMINISTRATION) if group is self._outlaw else (ApiKey.TICK,)
        api_key = random.choice(api_keys or [*REQUESTS, *forbidden])
        known = sorted(group.member_epochs)
        is_impostor = bool(known) and random.random() < 0.1
        member_id = random.choice(known) if is_impostor else random.choice(STRANGERS)
        return {
            "v": 1,
            "api_key": int(api_key),
            "api_version": 1,
            "correlation_id": self._correlation_id,
            "client_id": "hostile",
            "group_id": group.group_id,
            "member_id": member_id,
            "reply_partition": random.choice([0, 1, 3, 3, -1]),
            "leader_epoch": random.choice([LEADER_EPOCH] * 4 + [0, -1, LEADER_EPOCH + 1]),
            "body": self._bodies[api_key](group, member_id),
        }

    def _session_epoch(self, member_id: str) -> int:
        epoch = self._session_epochs.get(member_id, 0)
        self._session_epochs[member_id] = epoch + 1
        if self._random.random() < 0.2:
            self._session_epochs[member_id] = 0
        return self._random.choice([epoch, epoch, epoch, epoch, 0, 1, -1, epoch - 1, epoch + 7])

    def _offset(self, group: Victim) -> int:
        end = group.end_offset
        return self._random.choice([self._random.randint(0, end), self._random.randint(0, end), end, end + 1, 0, 10**9])

    def _topics(self, group: Victim, says: bool) -> list[Body]:
        random = self._random
        partitions: list[Body] = []
        for _ in range(random.choice([0, 1, 1, 2])):
            batches = []
            for _ in range(random.choice([1, 1, 3]) if says else 0):
                first = self._offset(group)
                last = first + random.choice([0, 0, 2, 10, -1, 2**62])
                types = [random.choice([0, 1, 2, 3, 4, 100])] * random.choice([1, 1, 1, 3])
                batches.append({"first_offset": first, "last_offset": last, "acknowledge_types": types, "reason": "no"})
            partitions.append({"partition_index": random.choice([0, 0, 1, 2, 9]), "acknowledgement_batches": batches})
        topic_id = random.choice([group.topic_id] * 4 + ["other-id", "payments-id"])
        return [{"topic_id": topic_id, "partitions": partitions}]

    def _fetch(self, group: Victim, member_id: str) -> Body:
        random = self._random
        return {
            "share_session_epoch": self._session_epoch(member_id),
            "max_wait_ms": random.choice([0, 500, 30_000, 2**31 - 1]),
            "max_records": random.choice([0, 1, 3, 5]),
            "batch_size": random.choice([1, 500, 2**31 - 1]),
            "acquire_mode": random.choice(["batch_optimized", "record_limit"]),
            "topics": self._topics(group, random.random() < 0.4),
            "forgotten_topics_data": [{"topic_id": group.topic_id, "partitions": [random.choice([0, 5, -1])]}],
        }

    def _acknowledge(self, group: Victim, member_id: str) -> Body:
        return {"share_session_epoch": self._session_epoch(member_id), "topics": self._topics(group, says=True)}

    def _heartbeat(self, group: Victim, member_id: str) -> Body:
        random = self._random
        epoch = group.member_epochs.get(member_id, 0)
        topics = [[group.topic], [group.topic, "payments"], ["nowhere"], ["^or.*"], [], None, ["a" * 300]]
        return {
            "member_epoch": random.choice([epoch, epoch, 0, -1, epoch + 1, epoch - 1, 2**31 - 1]),
            "rack_id": random.choice([None, "", "rack"]),
            "subscribed_topic_names": random.choice(topics),
        }

    def _alter_config(self, group: Victim, member_id: str) -> Body:
        return {"set": self._config(), "delete": self._random.choice([[], ["share.isolation.level"], ["no.such.key"]])}

    def _config(self) -> dict[str, str]:
        keys = self._random.sample(sorted(_CONFIG), self._random.choice([0, 1, 1, 2]))
        return {key: self._random.choice(_CONFIG[key]) for key in keys}

    def _log_offsets(self, group: Victim, member_id: str) -> Body:
        random = self._random
        offsets = [0, 5, 100, 2**40, 2**63 - 1]
        topic = random.choice([group.topic, "payments", f"made-up-{random.randrange(10**6)}"])
        partitions = [
            {
                "partition_index": random.choice([0, 1, 2, 50, 2**31 - 1]),
                "start_offset": random.choice(offsets[:3]),
                "end_offset": random.choice(offsets),
                "last_stable_offset": random.choice(offsets),
                "reset_offset": random.choice([-1, *offsets]),
            }
            for _ in range(random.choice([0, 1, 3, 200]))
        ]
        count = random.choice([0, 1, 2, 3, 40])
        return {
            "topics": [
                {
                    "topic": topic,
                    "topic_id": group.topic_id if topic == group.topic else f"{topic}-id",
                    "partition_count": count,
                    "partitions": partitions,
                }
            ]
        }

    def _dlq_written(self, group: Victim, member_id: str) -> Body:
        first = self._offset(group)
        last = first + self._random.choice([0, 5, -1, 2**62])
        return {
            "ranges": [{"topic_id": group.topic_id, "partition_index": 0, "first_offset": first, "last_offset": last}]
        }

    def _redrive(self, group: Victim, member_id: str) -> Body:
        random = self._random
        first = self._offset(group)
        ranges = [{"first_offset": first, "last_offset": first + random.choice([0, 5, -1, 2**62])}]
        partition = {"topic_id": group.topic_id, "partition_index": random.choice([0, 1, 7]), "ranges": ranges}
        return {"partitions": [partition] * random.choice([0, 1, 1, 2]), "reason": "x" * random.choice([0, 2_000])}

    def _state_topics(self, group: Victim, member_id: str) -> Body:
        random = self._random
        topic = random.choice([group.topic, "payments", f"made-up-{random.randrange(10**6)}"])
        partitions = [
            {
                "partition_index": random.choice([0, 1, 2, 7, 2**31 - 1]),
                "start_offset": random.choice([-1, 0, 2**63 - 1]),
            }
            for _ in range(random.choice([0, 1, 2]))
        ]
        return {
            "state_epoch": random.choice([0, 1, 2**31 - 1, -1]),
            "topics": [
                {
                    "topic_id": group.topic_id if topic == group.topic else f"{topic}-id",
                    "topic": topic,
                    "partitions": partitions,
                }
            ],
        }

    def _topic_ids(self, group: Victim, member_id: str) -> Body:
        random = self._random
        topic_ids = random.choice([[group.topic_id], [], ["payments-id", group.topic_id], ["made-up-id"]])
        return {"state_epoch": random.choice([0, 3, 2**31 - 1, -1]), "topic_ids": topic_ids}

    def _alter_offsets(self, group: Victim, member_id: str) -> Body:
        random = self._random
        states: list[Body] = [
            {},
            {"state_batches": [[5, 6, 0, 2], [8, 8, 2, 1], [9, 2**63 - 1, 4, 2**15 - 1]]},
            {"state_batches": [[6, 7, 3, 1]]},
            {"state_batches": [[7, 6, 0, 1]]},
            {"state_batches": [[5, 5, 1, 1], [3, 4, 9, -1]]},
            {"state_batches": 7},
        ]
        partitions = [
            {
                "partition_index": random.choice([0, 1, 7]),
                "start_offset": random.choice([0, 5, 2**63 - 1]),
                **random.choice(states),
            }
            for _ in range(random.choice([0, 1, 2]))
        ]
        names = [group.topic, "payments", "nowhere", "no topic", "a" * 300]
        return {"topics": [{"topic_name": random.choice(names), "partitions": partitions}]}
