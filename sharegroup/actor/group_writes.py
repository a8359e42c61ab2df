"""The open writes of a group: their application ids, and those that somebody has to look up in the sink.

A write needs a lookup when one of its records is RESOLVING, or when it is open and no record has it any more. It is
handed to a fetch of a member with the same sink, whether or not that acquires records, and once more when nobody has
resolved it after a while. The times are in memory only: after a takeover all are handed out again.

Versions of an application id rise for ever: a sink skips a lower one. A fetch that waited may get its records after a
later fetch, so it takes an id whose last version is lower, or comes again. Last versions are in memory, too: after a
takeover all fetches are sent again, and have higher offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sharegroup.core.due_times import DueTimes
from sharegroup.core.open_writes import OpenWrite
from sharegroup.core.records import PartitionKey
from sharegroup.core.run import NO_WRITE
from sharegroup.core.runs import RunMap
from sharegroup.protocol.sink_writes import Sink

HAND_OUT_INTERVAL_MS = 5_000
"""A write is handed out again after this time: the last one who got it may be gone."""
MAX_WRITES_PER_RESPONSE = 100
"""Writes that one response hands out: each costs its receiver a commit."""

_AT_ONCE = 0


class _Slots:
    """The numbers at the end of the application ids of one sink; each in use belongs to one open write."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._last_versions: dict[int, int] = {}
        """Slot → the version of its last write."""
        self._lowest_free = 0

    def free_for(self, version: int, most: int) -> int | None:
        """Return the lowest free slot below a bound that takes a version; None if there is none."""
        free = (slot for slot in range(self._lowest_free, most) if slot not in self._used)
        return next((slot for slot in free if self._last_versions.get(slot, NO_WRITE) < version), None)

    def use(self, slot: int, version: int) -> None:
        self._used.add(slot)
        self._last_versions[slot] = max(version, self._last_versions.get(slot, version))
        while self._lowest_free in self._used:
            self._lowest_free += 1

    def free(self, slot: int) -> None:
        self._used.discard(slot)
        self._lowest_free = min(self._lowest_free, slot)


class GroupWrites:
    """Open writes of all share-partitions of a group, by version.

    Args:
        app_id_prefix: the beginning of all application ids that are created here.
    """

    def __init__(self, app_id_prefix: str) -> None:
        self._app_id_prefix = app_id_prefix
        self._writes: dict[int, OpenWrite] = {}
        self._keys: dict[int, set[PartitionKey]] = {}
        """Version → the share-partitions in which the write is open."""
        self._slots: dict[str, _Slots] = {}
        """Table id → its slots."""
        self._counts: dict[str, int] = {}
        """Table id → open writes."""
        self._hand_out_times: DueTimes[int] = DueTimes()
        """Version → the time from which it is handed out."""
        self._due: dict[str, dict[int, None]] = {}
        """Table id → versions that the next fetch gets, in order."""
        self._refused_tables: set[str] = set()
        """Tables for which a fetch acquired nothing, since too many writes were open."""
        self._freed_tables: set[str] = set()

    def __iter__(self) -> Iterator[OpenWrite]:
        return iter(self._writes.values())

    def __len__(self) -> int:
        return len(self._writes)

    def get(self, version: int) -> OpenWrite | None:
        """Return an open write, None if it is not open."""
        return self._writes.get(version)

    def keys_of(self, version: int) -> list[PartitionKey]:
        """Return the share-partitions in which a write is open, sorted."""
        return sorted(self._keys.get(version, ()))

    def has_open(self, table_id: str) -> bool:
        """Return True if a write into a table is open."""
        return table_id in self._counts

    @property
    def next_hand_out_ms(self) -> int | None:
        """The time at which the next write is to be handed out; None when none is."""
        return self._hand_out_times.earliest_ms

    def next_write(self, sink: Sink, version: int, most: int, now_ms: int) -> OpenWrite | None:
        """Return the write for the next acquisition of a fetch; None if no application id takes its version.

        Args:
            version: offset of the fetch.
            most: `share.exactly.once.max.writes`.
        """
        if self.is_full(sink, most):
            self._refused_tables.add(sink.table_id)
            return None
        slot = self._slots.setdefault(sink.table_id, _Slots()).free_for(version, most)
        if slot is None:
            return None
        app_id = f"{self._prefix_of(sink.table_id)}{slot}"
        return OpenWrite(version, app_id, sink.table_id, sink.address, sink.version, now_ms)

    def is_full(self, sink: Sink, most: int) -> bool:
        """Return True if as many writes are open for a sink as may be; else a later fetch gets one."""
        return self._counts.get(sink.table_id, 0) >= most

    def opened(self, key: PartitionKey, write: OpenWrite) -> None:
        """Record that a write is open in a share-partition."""
        keys = self._keys.setdefault(write.version, set())
        if not keys:
            self._writes[write.version] = write
            self._counts[write.table_id] = self._counts.get(write.table_id, 0) + 1
            slots = self._slots.setdefault(write.table_id, _Slots())
            if (slot := self._slot_of(write)) is not None:
                slots.use(slot, write.version)
        keys.add(key)

    def closed(self, key: PartitionKey, version: int) -> None:
        """Record that a write is closed in a share-partition; with the last one its application id is free."""
        self._keys[version].discard(key)
        if self._keys[version]:
            return
        write = self._writes.pop(version)
        del self._keys[version]
        self._set_hand_out(write, None)
        table_id = write.table_id
        self._counts[table_id] -= 1
        if (slot := self._slot_of(write)) is not None:
            self._slots[table_id].free(slot)
        if not self._counts[table_id]:
            del self._counts[table_id]
        if table_id in self._refused_tables:
            self._refused_tables.discard(table_id)
            self._freed_tables.add(table_id)

    def refresh(self, version: int, runs: Iterable[RunMap]) -> None:
        """Update whether a write needs a lookup.

        Args:
            runs: those of the share-partitions in which it is open.
        """
        write = self._writes.get(version)
        if write is None:
            return
        runs = list(runs)
        needs_lookup = any(of.is_resolving(version) for of in runs) or not any(of.has_write(version) for of in runs)
        is_known = version in self._hand_out_times or version in self._due.get(write.table_id, ())
        if needs_lookup != is_known:
            self._set_hand_out(write, _AT_ONCE if needs_lookup else None)

    def take_woken_tables(self, now_ms: int) -> set[str]:
        """Return the tables whose fetches are to be served: a write is to be handed out, or may be opened again."""
        woken, self._freed_tables = self._freed_tables, set()
        for version in self._hand_out_times.take_due(now_ms):
            table_id = self._writes[version].table_id
            self._due.setdefault(table_id, {})[version] = None
            woken.add(table_id)
        return woken

    def hand_out(self, table_id: str, now_ms: int) -> list[OpenWrite]:
        """Return the writes of a sink that the receiver of a response is to look up; they are due again later."""
        due = self._due.get(table_id)
        if not due:
            return []
        versions = list(due)[:MAX_WRITES_PER_RESPONSE]
        for version in versions:
            del due[version]
            self._hand_out_times.set(version, now_ms + HAND_OUT_INTERVAL_MS)
        return [self._writes[version] for version in versions]

    def _set_hand_out(self, write: OpenWrite, at_ms: int | None) -> None:
        self._due.get(write.table_id, {}).pop(write.version, None)
        self._hand_out_times.set(write.version, at_ms)

    def _prefix_of(self, table_id: str) -> str:
        return f"{self._app_id_prefix}/{table_id}/"

    def _slot_of(self, write: OpenWrite) -> int | None:
        """Return the slot of a write; None if its id was created for an older state, whose ids are no longer used."""
        prefix = self._prefix_of(write.table_id)
        return int(write.app_id.removeprefix(prefix)) if write.app_id.startswith(prefix) else None
