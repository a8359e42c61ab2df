"""The positions of a group in its share-partitions, and its lag, from their description and the log's offsets."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.client.admin_conversation import DescribedPartitions
from sharegroup.client.group_results import SharePartitionOffsetInfo, TopicPartition
from sharegroup.core.records import PartitionKey
from sharegroup.logs.port import PartitionOffsets


def offset_infos(
    described: DescribedPartitions, in_log: Mapping[PartitionKey, PartitionOffsets]
) -> dict[TopicPartition, SharePartitionOffsetInfo]:
    """Return the position of each described share-partition, by topic and partition.

    Args:
        in_log: the offsets of the partitions that the log has.
    """
    infos: dict[TopicPartition, SharePartitionOffsetInfo] = {}
    for (topic_id, partition), share_partition in described.partitions.items():
        unfinished = None
        if (offsets := in_log.get((topic_id, partition))) is not None:
            # Which of the deleted records were finished is not known here: neither count is below the lag.
            present_count = offsets.end_offset - max(offsets.start_offset, share_partition.start_offset)
            unfinished_count = (
                offsets.end_offset - share_partition.start_offset - share_partition.delivery_complete_count
            )
            unfinished = max(min(present_count, unfinished_count), 0)
        info = SharePartitionOffsetInfo(share_partition.start_offset, share_partition.leader_epoch, unfinished)
        infos[described.topics[topic_id], partition] = info
    return infos
