"""The administrator's imports and redrives: what was asked for, and what the state table did with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.imported_batches import ImportedBatch
from sharegroup.protocol.rows import StateRow, TransitionEntry

ShareKey = tuple[str, str, int]
"""Group, topic id, partition."""
RecordKey = tuple[str, str, int, int]
"""Group, topic id, partition, offset."""
_Imported = dict[int, tuple[RecordState, int]]
"""Offset → state and delivery count."""


@dataclass(slots=True)
class Delivery:
    """One record, as responses tell it.

    Attributes:
        count: deliveries, less those that were taken back.
        holder: who has it; "" when nobody.
        start_ms: when its lock began.
        end_ms: when its lock ends, at the earliest.
        latest_end_ms: when it has ended for sure.
        is_finished: it must not be delivered any more.
        is_archived: it was finished without being accepted, so that it may be redriven.
        may_be_finished: a success came about when its lock ended: it counted, or the record was finished before.
    """

    count: int = 0
    holder: str = ""
    start_ms: int = 0
    end_ms: int = 0
    latest_end_ms: int = 0
    is_finished: bool = False
    is_archived: bool = False
    may_be_finished: bool = False


class Administered:
    """Compares imports and redrives with the requests for them, and brings them into the accounts.

    Args:
        records: the accounts.
        violated: called with each violation.
    """

    def __init__(self, records: MutableMapping[RecordKey, Delivery], violated: Callable[[str], None]) -> None:
        self._records = records
        self._violated = violated
        self._imports: dict[tuple[str, str, int], list[_Imported]] = defaultdict(list)
        self._redrives: set[RecordKey] = set()

    def may_import(self, group_id: str, topic: str, partition: int, batches: Iterable[ImportedBatch]) -> None:
        """Note what a share-partition may begin with from now on."""
        asked = {
            offset: (_finally(state), count)
            for first, last, state, count in batches
            for offset in range(first, last + 1)
        }
        self._imports[group_id, topic, partition].append(asked)

    def may_redrive(self, record_key: RecordKey) -> None:
        """Note a record that may become available again from now on."""
        self._redrives.add(record_key)

    def archived(self, group_id: str) -> list[RecordKey]:
        """Return the records of a group that were given up, as far as responses tell."""
        return [key for key, delivery in self._records.items() if key[0] == group_id and delivery.is_archived]

    def begin(self, share_key: ShareKey, row: StateRow) -> None:
        """Start the accounts of a share-partition again, with what was imported."""
        for record_key in [record_key for record_key in self._records if record_key[:3] == share_key]:
            del self._records[record_key]
        imported: _Imported = {
            offset: (_finally(entry.to_state), entry.delivery_count)
            for entry, offset in _records_of(row.transitions, Cause.IMPORTED)
        }
        if imported and imported not in self._imports[row.group_id, row.topic, row.partition]:
            self._violated(f"{share_key} begins with {imported}, which nobody asked for")
        for offset, (state, count) in imported.items():
            is_archived = state is RecordState.ARCHIVED
            self._records[(*share_key, offset)] = Delivery(
                count=count, is_finished=state is not RecordState.AVAILABLE, is_archived=is_archived
            )

    def redrive(self, share_key: ShareKey, entries: Sequence[TransitionEntry]) -> None:
        """Let redriven records be delivered from the first time on again."""
        for entry, offset in _records_of(entries, Cause.REDRIVE):
            record_key = (*share_key, offset)
            if record_key not in self._redrives:
                self._violated(f"{record_key} is redriven, though nobody asked for it")
            if (entry.from_state, entry.to_state, entry.delivery_count) != (
                RecordState.ARCHIVED,
                RecordState.AVAILABLE,
                0,
            ):
                self._violated(f"{record_key} is redriven by {entry}")
            self._records[record_key] = Delivery()


def _records_of(entries: Iterable[TransitionEntry], cause: Cause) -> Iterator[tuple[TransitionEntry, int]]:
    for entry in entries:
        if entry.cause is cause:
            for offset in range(entry.first_offset, entry.last_offset + 1):
                yield entry, offset


def _finally(state: RecordState) -> RecordState:
    """Without a dead-letter topic, a record that waits for its dead letter is archived at once."""
    return RecordState.ARCHIVED if state is RecordState.ARCHIVING else state
