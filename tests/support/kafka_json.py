"""Records of Kafka's share-group state as Kafka's own JSON converters write them."""

from __future__ import annotations

from typing import Any

from sharegroup.protocol.share_state_records import UNKNOWN_COUNT, SharePartitionKey, ShareSnapshot, ShareUpdate

Json = dict[str, Any]


def key_json(key: SharePartitionKey) -> Json:
    return {"groupId": key.group_id, "topicId": key.topic_id, "partition": key.partition}


def value_json(value: ShareSnapshot | ShareUpdate) -> Json:
    """A tagged field is left out at its default."""
    fields: Json = {
        "snapshotEpoch": value.snapshot_epoch,
        "leaderEpoch": value.leader_epoch,
        "startOffset": value.start_offset,
        "stateBatches": [
            {
                "firstOffset": batch.first_offset,
                "lastOffset": batch.last_offset,
                "deliveryState": int(batch.delivery_state),
                "deliveryCount": batch.delivery_count,
            }
            for batch in value.state_batches
        ],
    }
    if value.delivery_complete_count != UNKNOWN_COUNT:
        fields["deliveryCompleteCount"] = value.delivery_complete_count
    if isinstance(value, ShareSnapshot):
        fields["stateEpoch"] = value.state_epoch
        fields["createTimestamp"] = value.create_timestamp
        fields["writeTimestamp"] = value.write_timestamp
    return fields
