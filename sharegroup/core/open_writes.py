"""Open writes: results of records that may be in a sink, or may still get there.

A member with a sink writes the results of one acquisition in a commit that names the write: an application id, which
the sink never forgets, and a version, which rises for ever. So the sink takes each write once, and its log shows later
if it has it. From the acquisition on, each of its records has the version of the write (`Run.write_version`).

1. An acquisition opens the write, and its records are ACQUIRED. The open write keeps all that is needed to look it up.
2. Only the sink decides: a resolution says what its commit says, from any sender, once or often, early or late. It is
   applied to the records that have the write, ACQUIRED or RESOLVING, and to no others.
3. A delivery that ends otherwise is in doubt, unless its member has given the records up before the write began. The
   records are RESOLVING, and nobody gets them. They keep the end that was intended, the first one: it applies, with its
   count, delay and suspicion, if the sink does not have them.
4. A write is closed when nothing of it can get into the sink any more. Its application id is free from then on, and not
   before: a later version would make an earlier one undecidable.

The log start does not pass records with an open write, since a record is accepted exactly if its result is in the sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import AcknowledgeType


class OpenWrite(NamedTuple):
    """A write of results that is not closed.

    Attributes:
        version: offset of the fetch that acquired the records, in the request log; it rises for ever.
        app_id: application id of its commits, as it was when the write was opened.
        table_id: id of the Delta table that it belongs to.
        address: path or URI of that table, for those who look the write up.
        sink_version: version of that table at the fetch: the commit is a later one.
        opened_ms: time of the acquisition; epoch ms.
    """

    version: int
    app_id: str
    table_id: str
    address: str
    sink_version: int
    opened_ms: int


@dataclass(frozen=True, slots=True)
class WriteOpened:
    """The acquisition of records of a share-partition with a write; all of them are within these offsets."""

    write: OpenWrite
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class WriteClosed:
    """The end of a write: nothing of it can get into its sink any more, and no record has it."""

    version: int


class RecordOutcome(NamedTuple):
    """The acknowledgement of a record in a commit of its write.

    Attributes:
        redelivery_delay_ms: delay before a released or unread record is available again; None = the group's back-off.
    """

    acknowledge_type: AcknowledgeType
    redelivery_delay_ms: int | None = None


class Resolution:
    """The report of a sink on the records of a share-partition with a write, for ever.

    Args:
        outcomes: first offset, last offset and outcome of the records that a commit names.
        others: the outcome of all other records of the write; None = they are not written.
        is_closed: True if nothing of the write can get into the sink any more. Otherwise it says nothing of others.
    """

    def __init__(
        self, outcomes: Iterable[tuple[int, int, RecordOutcome]], others: RecordOutcome | None, *, is_closed: bool
    ) -> None:
        self.outcomes: RangeMap[RecordOutcome] = RangeMap()
        for first, last, outcome in outcomes:
            self.outcomes.assign(first, last, outcome)
        self.others = others
        self.is_closed = is_closed
