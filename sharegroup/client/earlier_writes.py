"""The writes of earlier states: what they put into sinks, for a state table that began again with an older copy.

The copy does not know the writes that were opened after it. Their results may be in the sinks, or may still get there:

1. Each application id that an earlier state could have used is fenced with the highest version there is, so that
   nothing of it gets into the table any more.
2. The commits of these ids in the table's history are read. Each names the records that it decides on.
3. What they accept and reject is added to the state of the group, before it acquires anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.group_results import TopicPartition
from sharegroup.client.imported_partition import ImportedPartition
from sharegroup.client.sink_commits import WriteMetadata
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.core.records import PartitionKey
from sharegroup.core.state_batches import StateBatch, persisted_batches
from sharegroup.errors import SinkError
from sharegroup.state.fold import FoldedGroup

_HIGHEST_VERSION = 2**63 - 1
"""Above each transaction of a write."""
_IDS_PER_COMMIT = 1_000
_MAX_ATTEMPTS = 20
_STATE_KEY = "sharegroup.earlier_states"
_ENDED = {AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED, AcknowledgeType.REJECT: RecordState.ARCHIVED}
"""Outcomes that a record keeps; with all others it is delivered again."""

Outcomes = dict[PartitionKey, RangeMap[RecordState]]
"""Share-partition → offsets → the state in which a commit of the sink ended them."""


class NewPartition(NamedTuple):
    """A share-partition that the older copy does not have: its topic's name, and where it begins."""

    topic: str
    start_offset: int


def app_id_prefix(state_id: str, group_id: str, table_id: str) -> str:
    """Return the beginning of the application ids of a state's writes into a table; a slot's number follows."""
    return f"sharegroup/{state_id}/{group_id}/{table_id}/"


def fence_ids(sink: DeltaSink, app_ids: Iterable[str]) -> int:
    """Keep all transactions of some application ids out of a table, for ever; return the number of commits.

    Raises:
        SinkError: the table cannot be read or written.
    """
    remaining = iter(app_ids)
    count = 0
    while portion := list(islice(remaining, _IDS_PER_COMMIT)):
        count += _fence(sink, portion)
    return count


def outcomes_of(writes: Iterable[WriteMetadata]) -> tuple[Outcomes, list[WriteMetadata]]:
    """Return what the commits of writes have ended, and those of them that do not say which records they accept."""
    outcomes: Outcomes = {}
    unclear: list[WriteMetadata] = []
    for write in sorted(writes, key=lambda each: (each.version, each.part)):
        if write.is_fence:
            continue
        if not write.names_all and not write.accepted:
            unclear.append(write)
        for topic_id, partition, first, last in write.accepted:
            outcomes.setdefault((topic_id, partition), RangeMap()).assign(first, last, RecordState.ACKNOWLEDGED)
        for named in write.partitions:
            for each in named.ranges:
                if (state := _ENDED.get(each.acknowledge_type)) is not None:
                    of_partition = outcomes.setdefault((named.topic_id, named.partition_index), RangeMap())
                    of_partition.assign(each.first_offset, each.last_offset, state)
    return outcomes, unclear


def partitions_with(
    group: FoldedGroup, outcomes: Outcomes, new: Mapping[PartitionKey, NewPartition]
) -> dict[TopicPartition, ImportedPartition]:
    """Return the share-partitions of a group with what sinks have ended, as far as it has not ended there already.

    Args:
        new: share-partitions that the group does not have; without an entry their topic is gone.
    """
    imported: dict[TopicPartition, ImportedPartition] = {}
    for key, ended in sorted(outcomes.items(), key=lambda item: item[0]):
        folded = group.partitions.get(key)
        if folded is not None:
            topic, start_offset = folded.topic, folded.share_partition.start_offset
            batches: Sequence[StateBatch] = persisted_batches(folded.share_partition.runs)
        elif key in new:
            topic, start_offset = new[key]
            batches = ()
        else:
            continue
        after = tuple(_ended_batches(batches, ended, start_offset))
        if after != tuple(batches) or folded is None:
            imported[topic, key[1]] = ImportedPartition(start_offset, after)
    return imported


def _fence(sink: DeltaSink, app_ids: Sequence[str]) -> int:
    for attempt in range(_MAX_ATTEMPTS):
        table = sink.load()
        left = [each for each in app_ids if (table.transaction_version(each) or 0) < _HIGHEST_VERSION]
        if not left:
            return attempt
        states = sorted({each.split("/")[1] for each in left})
        # It fails if a writer of the earlier state came between.
        sink.has_fenced(table, json.dumps({_STATE_KEY: states}), dict.fromkeys(left, _HIGHEST_VERSION))
    raise SinkError(
        f"Writes of earlier states could not be fenced in {sink.sink.address} in {_MAX_ATTEMPTS} attempts.",
        "Stop the members of the group, and try again.",
    )


def _ended_batches(
    batches: Iterable[StateBatch], ended: RangeMap[RecordState], start_offset: int
) -> Iterator[StateBatch]:
    states: RangeMap[tuple[int, RecordState]] = RangeMap()
    for batch in batches:
        states.assign(batch.first_offset, batch.last_offset, (batch.delivery_count, batch.delivery_state))
    for first, last, state in ended:
        if last >= start_offset:
            states.assign(max(first, start_offset), last, (1, state))
    for first, last, (count, state) in states:
        yield StateBatch(first, last, count, state)
