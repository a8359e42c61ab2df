"""A state table of an imported history: no processor has written it, and none may start on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from sharegroup.errors import ConfigurationError
from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.row_payloads import IMPORTED_FROM
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter

_ROWS_PER_COMMIT = 1_000


def check_is_new(path: str) -> None:
    """Check that there is no table at a path: a history is imported into a table of its own.

    Raises:
        ConfigurationError: there is one.
    """
    if StateTableReader(path).exists():
        raise ConfigurationError(
            f"There is a state table at {path} already.",
            "Name a folder that does not exist; an import makes its table.",
        )


def write_history(path: str, rows: Iterable[StateRow], source: str) -> None:
    """Make the table, and write all rows in commits, each with its marker.

    Args:
        rows: the rows; their request offsets count them.
        source: where they come from; a processor that is started on the table names it.

    Raises:
        ConfigurationError: there is a table at the path.
        StateTableError: the table cannot be written.
    """
    check_is_new(path)
    writer = StateTableWriter.open(path, {IMPORTED_FROM: source})
    for commit_id, part in enumerate(_parts(rows)):
        cuts = _cuts(part)
        time_ms = cuts[-1].time_ms
        marker = CommitMarkerPayload(
            row_count=len(part) + 1,
            end_offsets={0: cuts[-1].end_offset},
            cuts=cuts,
            message_times_ms={0: time_ms},
        )
        last = constructed(
            StateRow, record_type=RecordType.COMMIT_MARKER, time_ms=time_ms, payload=marker.model_dump(mode="json")
        )
        writer.append([*part, last], commit_id)


def _cuts(rows: Iterable[StateRow]) -> list[Cut]:
    """Return a cut for each time, so that an audit can go to each."""
    ends = {row.time_ms: row.request_offset + 1 for row in rows}
    return [Cut(partition=0, end_offset=end, time_ms=time_ms) for time_ms, end in ends.items()]


def _parts(rows: Iterable[StateRow]) -> Iterator[list[StateRow]]:
    remaining = iter(rows)
    while part := list(islice(remaining, _ROWS_PER_COMMIT)):
        yield part
