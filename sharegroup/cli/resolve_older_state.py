"""`sharegroup groups resolve --older-state`: what sinks have of the writes that a copy of the state table lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sharegroup.audit.sinks.sink_history import SinkAudit, SinkHistory
from sharegroup.client.admin import AdminClient
from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.earlier_writes import (
    NewPartition,
    Outcomes,
    app_id_prefix,
    fence_ids,
    outcomes_of,
    partitions_with,
)
from sharegroup.client.group_results import ShareGroupDescription
from sharegroup.client.sink_commits import WriteCommit, WriteMetadata
from sharegroup.client.sink_table import CLOCK_DIFFERENCE_MS
from sharegroup.client.write_decisions import open_writes
from sharegroup.config.group import GroupConfig
from sharegroup.core.open_writes import OpenWrite
from sharegroup.core.records import PartitionKey
from sharegroup.errors import ApiError, InvalidRequestError, UndecidedWriteError
from sharegroup.logs.port import Log
from sharegroup.protocol.group_description import AwaitedState
from sharegroup.state.fold import FoldedGroup

_ACCEPTED_KEY = "share.exactly.once.accepted.state.id"


class TakenOverSink(NamedTuple):
    """A sink whose writes of earlier states are kept out, and taken over.

    Attributes:
        id_count: application ids that are fenced.
        write_count: commits that it has of lost writes.
    """

    address: str
    table_id: str
    id_count: int
    write_count: int


class TakenOver(NamedTuple):
    """The result for a group.

    Attributes:
        resolved_count: open writes of the copy that were looked up.
        partition_count: share-partitions whose state has changed.
    """

    sinks: list[TakenOverSink]
    resolved_count: int
    partition_count: int


class OlderStateTakeover:
    """Takes over, for a group that began again with an older copy, what its sinks have of the writes since.

    Args:
        read_group: returns the present state of the group.
        options: of delta-rs for the sinks' stores.
        accepts_unclear: True to deliver records again of which no sink says any more whether it has their results.
    """

    def __init__(
        self,
        log: Log,
        admin: AdminClient,
        group_id: str,
        read_group: Callable[[], FoldedGroup],
        options: Mapping[str, str],
        timeout_s: float,
        *,
        accepts_unclear: bool = False,
    ) -> None:
        self._log = log
        self._admin = admin
        self._group_id = group_id
        self._read_group = read_group
        self._options = options
        self._timeout_s = timeout_s
        self._accepts_unclear = accepts_unclear

    def run(self, addresses: Iterable[str] = ()) -> TakenOver | None:
        """Do it; return None if the group has nothing to take over. It may be repeated.

        Args:
            addresses: sinks besides those that the group knows.

        Raises:
            InvalidRequestError: the group has members, or no sink is known.
            UndecidedWriteError: a sink does not say any more what it has of the lost writes.
            SinkError: a sink cannot be read or written.
        """
        described = self._described()
        if not described.awaited_states:
            return None
        if described.members:
            raise InvalidRequestError(
                f"Group {self._group_id} has {len(described.members)} members.",
                "Stop them first: they get no records before this command has ended.",
            )
        config, group = self._config(), self._read_group()
        opened = [each.write for each in open_writes(group)]
        known = sorted({*addresses, *config.exactly_once_sinks, *(write.address for write in opened)})
        if not known:
            raise InvalidRequestError(
                f"No sink of group {self._group_id} is known.",
                "Name each table that its members have ever written to with --sink.",
            )
        # 1. Fence, and read.
        sinks, writes = self._fenced(known, described.awaited_states, config.share_exactly_once_max_writes, opened)
        outcomes, unclear = outcomes_of(writes)
        if unclear and not self._accepts_unclear:
            raise _unclear(
                f"{len(unclear)} commits, the first of write {unclear[0].version} of {unclear[0].app_id}, do "
                "not say which records they accept"
            )
        # 2. Look up what is open: nothing of it gets in any more.
        resolved_count = self._resolve_open(group)
        # 3. Add what the sinks have ended.
        states = partitions_with(self._read_group(), outcomes, self._new_partitions(group, outcomes, config))
        for error in self._admin.import_share_partitions(self._group_id, states, self._timeout_s).values():
            if error is not None:
                raise error
        # 4. Let it acquire records again.
        self._admin.alter_group_config(self._group_id, {_ACCEPTED_KEY: described.state_id}, timeout=self._timeout_s)
        return TakenOver(sinks, resolved_count, len(states))

    def _described(self) -> ShareGroupDescription:
        described = self._admin.describe_share_groups([self._group_id], timeout=self._timeout_s)[self._group_id]
        if isinstance(described, ApiError):
            raise described
        return described

    def _config(self) -> GroupConfig:
        entries = self._admin.describe_configs([self._group_id], self._timeout_s)[self._group_id]
        if isinstance(entries, ApiError):
            raise entries
        return GroupConfig.from_mapping({key: entry.value for key, entry in entries.items()})

    def _fenced(
        self, addresses: Iterable[str], states: Sequence[AwaitedState], slot_count: int, opened: Sequence[OpenWrite]
    ) -> tuple[list[TakenOverSink], list[WriteMetadata]]:
        """Keep the writes of earlier states out of all sinks; return what they have of them."""
        slots = {_slot(write.app_id) for write in opened}
        sinks: list[TakenOverSink] = []
        all_writes: list[WriteMetadata] = []
        for address in addresses:
            with DeltaSink(address, self._options) as sink:
                table_id = sink.sink.table_id
                by_prefix = {app_id_prefix(each.state_id, self._group_id, table_id): each for each in states}
                slots |= {_slot(each.app_id) for each in self._lost(self._history(address), by_prefix, opened)}
                most = max(slot_count, *(slot + 1 for slot in slots), 0)
                fence_ids(sink, (f"{prefix}{slot}" for prefix in by_prefix for slot in range(most)))
                history = self._history(address)
            writes = self._lost(history, by_prefix, opened)
            begins_late = history.times_ms[history.first_version] > min(each.ended_ms for each in states)
            if history.first_version > 0 and begins_late and not self._accepts_unclear:
                raise _unclear(f"the log of {address} begins with version {history.first_version}, later than the copy")
            sinks.append(TakenOverSink(address, table_id, most * len(by_prefix), len(writes)))
            all_writes += writes
        return sinks, all_writes

    def _history(self, address: str) -> SinkHistory:
        return SinkAudit(address, self._options).history()

    def _lost(
        self, history: SinkHistory, by_prefix: Mapping[str, AwaitedState], opened: Sequence[OpenWrite]
    ) -> list[WriteMetadata]:
        """Return the commits of writes that the copy may not know."""
        known = {(write.app_id, write.version) for write in opened}
        return [
            each.metadata
            for each in history.commits
            if not each.metadata.is_fence
            and each.table_version not in history.undone
            and (each.metadata.app_id, each.metadata.version) not in known
            and any(
                each.metadata.app_id.startswith(prefix) and _may_be_lost(each, history, state)
                for prefix, state in by_prefix.items()
            )
        ]

    def _resolve_open(self, group: FoldedGroup) -> int:
        count = 0
        for each in open_writes(group):
            with DeltaSink(each.write.address, self._options) as sink:
                resolution = sink.resolve(each.unresolved)
            self._admin.resolve_write(self._group_id, resolution, self._timeout_s)
            count += 1
        return count

    def _new_partitions(
        self, group: FoldedGroup, outcomes: Outcomes, config: GroupConfig
    ) -> dict[PartitionKey, NewPartition]:
        """Return the share-partitions that the copy does not have, and that are in the log."""
        missing = [key for key in outcomes if key not in group.partitions]
        names = {topic.topic_id: topic.name for topic in self._log.topics()} if missing else {}
        new: dict[PartitionKey, NewPartition] = {}
        for topic_id, partition in missing:
            if (topic := names.get(topic_id)) is None:
                continue
            start_offset = min(first for first, _, _ in outcomes[topic_id, partition])
            if config.share_auto_offset_reset == "earliest":
                start_offset = self._log.offsets(topic, [partition])[partition].start_offset
            new[topic_id, partition] = NewPartition(topic, start_offset)
        return new


def _may_be_lost(commit: WriteCommit, history: SinkHistory, state: AwaitedState) -> bool:
    """Return True if the copy may not know a write: what it knows, and is not open in it, it has decided.

    A fetch that the copy has applied may have waited, and opened its write later.
    """
    is_late = history.times_ms[commit.table_version] > state.ended_ms - CLOCK_DIFFERENCE_MS
    return is_late or commit.metadata.version >= state.end_offset


def _slot(app_id: str) -> int:
    text = app_id.rpartition("/")[2]
    return int(text) if text.isdigit() else 0


def _unclear(reason: str) -> UndecidedWriteError:
    return UndecidedWriteError(
        f"It is not known what the sinks have of the lost writes: {reason}.",
        "With --accept-unclear these records are delivered again, and their results may be there twice. `sharegroup "
        "audit verify --sink` shows them by record where the sink has topic, partition and offset columns.",
    )
