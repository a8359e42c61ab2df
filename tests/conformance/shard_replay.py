"""A recorded conversation with Kafka's ShareCoordinatorShard, held with ours; results in the form of the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sharegroup.coordinator.share_coordinator_shard import ShareCoordinatorShard, ShareGroupState
from sharegroup.errors import ApiError
from sharegroup.protocol.share_state_records import (
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareUpdate,
    decoded,
    encoded,
)
from tests.conformance.quadruples import quadruples, state_batches
from tests.support.kafka_json import Json, key_json, value_json


class LoggedShard(ShareCoordinatorShard):
    """Results of Kafka's class that exist because it keeps a log, and for which the state table has means of its own.

    Tombstones of topics that are gone are asked for by group; table snapshots hold cold share-partitions, and pruning
    goes by them.

    Args:
        config: as recorded.
    """

    def __init__(self, config: Json) -> None:
        super().__init__(config["topics"], config["updates_per_snapshot"])
        self._cold_snapshot_interval_ms: int = config["cold_partition_snapshot_ms"]
        self._base_offsets: dict[SharePartitionKey, int] = {}
        self.updated: set[SharePartitionKey] = set()
        """Share-partitions with an update: Kafka counts none before the first, instead of zero."""
        self._last_tombstone_offset = 0

    @property
    def last_redundant_offset(self) -> int | None:
        """Nobody needs what lies in the log below this offset; None when all of it is needed."""
        return min(self._base_offsets.values(), default=self._last_tombstone_offset) or None

    def append(self, record: ShareStateRecord, log_offset: int) -> None:
        """Apply a record that stands at an offset of the log."""
        self.apply(record)
        if record.value is None:
            self._base_offsets.pop(record.key, None)
            self.updated.discard(record.key)
            self._last_tombstone_offset = log_offset
        elif isinstance(record.value, ShareSnapshot):
            self._base_offsets[record.key] = log_offset
        else:
            self.updated.add(record.key)

    def delete_topic(self, topic_id: str) -> list[ShareStateRecord]:
        """Delete the state of every share-partition of a topic that is gone, by key."""
        return [ShareStateRecord(key, None) for key in sorted(self.states) if key.topic_id == topic_id]

    def snapshot_cold_partitions(self, now_ms: int) -> list[ShareStateRecord]:
        """Snapshots of share-partitions that have had none for the interval, by key.

        None at all when every share-partition had such a snapshot as its last one: then nothing goes on.
        """
        held = {key: known.persisted for key, known in sorted(self.states.items(), key=lambda item: item[0])}
        if all(persisted.create_timestamp != persisted.write_timestamp for persisted in held.values()):
            return []
        return [
            ShareStateRecord(
                key, replace(persisted, snapshot_epoch=persisted.snapshot_epoch + 1, write_timestamp=now_ms)
            )
            for key, persisted in held.items()
            if now_ms - persisted.write_timestamp >= self._cold_snapshot_interval_ms
        ]


class ShardReplay:
    """One conversation: a shard, its log, and the clock.

    Args:
        config: as recorded.
    """

    def __init__(self, config: Json) -> None:
        self._config = config
        self._now_ms: int = config["start_ms"]
        self._log: list[tuple[bytes, bytes | None]] = []
        self._shard = LoggedShard(config)

    def carry_out(self, step: Json) -> Json:
        """Carry a step out; what it should be equal to is the step's `expect`."""
        end_offset = len(self._log)
        try:
            response, records = self._carried_out(step)
        except ApiError as error:
            response, records = {"error": error.name, "message": error.message}, []
        for record in records:
            self._shard.append(record, len(self._log))
            self._log.append(encoded(record))
        return {
            "response": response,
            "records": [_record_json(offset, record) for offset, record in enumerate(records, end_offset)],
            "state": {
                f"{key.group_id}:{key.topic_id}:{key.partition}": _state_json(state, key in self._shard.updated)
                for key, state in self._shard.states.items()
            },
            "last_redundant_offset": self._shard.last_redundant_offset,
        }

    def _reload(self) -> None:
        self._shard = LoggedShard(self._config)
        for offset, (key, value) in enumerate(self._log):
            self._shard.append(decoded(key, value), offset)

    def _carried_out(self, step: Json) -> tuple[Json, Sequence[ShareStateRecord]]:
        key = SharePartitionKey(step.get("group", ""), step.get("topic_id", ""), step.get("partition", -1))
        response: Json = {"error": "NONE"}
        records: Sequence[ShareStateRecord] = []
        match step["op"]:
            case "initialize":
                records = self._shard.initialize(key, step["state_epoch"], step["start_offset"], self._now_ms)
            case "write":
                records = self._shard.write(key, step["state_epoch"], _change(step), self._now_ms)
            case "read":
                state, records = self._shard.read(key, step["leader_epoch"], self._now_ms)
                response |= _only(_snapshot_json(state), "state_epoch", "start_offset", "state_batches")
            case "read_summary":
                summary = _snapshot_json(self._shard.read_summary(key))
                response |= _only(summary, "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
            case "delete":
                records = self._shard.delete(key)
            case "topic_deleted":
                records = self._shard.delete_topic(step["topic_id"])
            case "snapshot_cold_partitions":
                records = self._shard.snapshot_cold_partitions(self._now_ms)
            case "advance":
                self._now_ms += step["ms"]
            case "reload":
                self._reload()
            case operation:
                raise AssertionError(f"{operation!r} is no operation of the recordings")
        return response, records


def _change(step: Json) -> ShareUpdate:
    return ShareUpdate(
        snapshot_epoch=-1,
        leader_epoch=step["leader_epoch"],
        start_offset=step["start_offset"],
        delivery_complete_count=step.get("delivery_complete_count", UNKNOWN_COUNT),
        state_batches=state_batches(step["state_batches"]),
    )


def _only(fields: Json, *names: str) -> Json:
    return {name: fields[name] for name in names}


def _snapshot_json(snapshot: ShareSnapshot) -> Json:
    return {
        "snapshot_epoch": snapshot.snapshot_epoch,
        "state_epoch": snapshot.state_epoch,
        "leader_epoch": snapshot.leader_epoch,
        "start_offset": snapshot.start_offset,
        "delivery_complete_count": snapshot.delivery_complete_count,
        "state_batches": quadruples(snapshot.state_batches),
        "create_ts": snapshot.create_timestamp,
        "write_ts": snapshot.write_timestamp,
    }


def _state_json(state: ShareGroupState, is_updated: bool) -> Json:
    return {
        **_snapshot_json(state.persisted),
        "fence_leader_epoch": state.leader_epoch_fence,
        "fence_state_epoch": state.state_epoch_fence,
        "updates_since_snapshot": state.updates_since_snapshot if is_updated else None,
    }


def _record_json(offset: int, record: ShareStateRecord) -> Json:
    key, value = encoded(record)
    return {
        "offset": offset,
        "type": "ShareUpdate" if isinstance(record.value, ShareUpdate) else "ShareSnapshot",
        "key": key_json(record.key),
        "value": None if record.value is None else value_json(record.value),
        "key_hex": key.hex(),
        "value_hex": None if value is None else value.hex(),
    }
