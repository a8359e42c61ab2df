"""The commits of a write in a Delta table: their versions, and what their `userMetadata` says.

A commit has the transaction (application id, 1,024 times the version + part). Only the last part, 1,023, closes the
write: Delta refuses every transaction that is not above it. A fence has that part, too, and no rows. So a write in one
commit has the part 1,023, and one in several commits has rising parts.

A commit may have several writes, each with a transaction of its own. `userMetadata` is a JSON object; the key
`sharegroup.write` is ours, with a write, or several that share the beginning of their application ids, and the user's
own text is beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import Field, ValidationError

from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import SinkError
from sharegroup.protocol.messages import Int64, Message
from sharegroup.protocol.sink_writes import AppId, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolvedRange, ResolveWriteRequest

PARTS_PER_WRITE = 1_024
CLOSING_PART = PARTS_PER_WRITE - 1
"""The part after which nothing of a write can get into the table."""
MAX_METADATA_BYTES = 262_144
"""Most bytes of a commit's acknowledgements: each reader of the log parses them."""

_WRITE = "sharegroup.write"
_USER = "userMetadata"
_WRITES = "writes"
_PREFIX = "app_id_prefix"


AcceptedRange = tuple[str, int, int, int]
"""Topic id, partition, first and last offset."""


class Written(Protocol):
    """The names of a write, in a fetch response or among those that are to be looked up."""

    app_id: str
    version: int


class WriteMetadata(Message):
    """The part of a commit's `userMetadata` that names its write, and the acknowledgements of its records."""

    app_id: AppId = Field(description="Application id of the write.")
    version: Int64 = Field(description="Its version.")
    part: int = Field(default=CLOSING_PART, ge=0, le=CLOSING_PART, description="Part of the write.")
    after: int | None = Field(
        default=None, ge=0, lt=CLOSING_PART, description="Part before, of the same run; null for the first one."
    )
    is_fence: bool = Field(default=False, description="True if the commit has no rows, and keeps the write out.")
    names_all: bool = Field(default=False, description="True if all records of the commit are named, as in a part.")
    partitions: list[ResolvedPartition] = Field(
        default_factory=list, description="Acknowledgements; records that are not named are accepted."
    )
    accepted: list[AcceptedRange] = Field(
        default_factory=list,
        description="Topic id, partition, first and last offset of records that it accepts without naming them, for "
        "a state table that does not know the write; left out where they do not fit.",
    )


class WritePart(NamedTuple):
    """The part of a write that a commit has.

    Attributes:
        partitions: acknowledgements of its records.
        names_all: True if they name all records that the commit decides on; otherwise the others are accepted.
        part: its number; the last one closes the write.
        after: number of the part before, of the same run; None for the first.
        accepted: records that it accepts without naming them.
    """

    write: UnresolvedWrite
    partitions: Sequence[ResolvedPartition] = ()
    names_all: bool = False
    part: int = CLOSING_PART
    after: int | None = None
    accepted: Sequence[AcceptedRange] = ()

    @property
    def transaction_version(self) -> int:
        """Version of its transaction."""
        return transaction_version(self.write.version, self.part)

    @property
    def metadata(self) -> WriteMetadata:
        """The part of the commit's `userMetadata` that is its own."""
        return WriteMetadata(
            app_id=self.write.app_id,
            version=self.write.version,
            part=self.part,
            after=self.after,
            names_all=self.names_all,
            partitions=list(self.partitions),
            accepted=list(self.accepted),
        )


class SinkCommit(NamedTuple):
    """The writes of a commit as the log has them after it.

    Attributes:
        is_written: True if it has the commit; otherwise it has nothing of it, and never will.
        reports: what it says of each write.
    """

    is_written: bool
    reports: list[ResolveWriteRequest]


class WriteCommit(NamedTuple):
    """A write of a commit in the log of the table."""

    table_version: int
    metadata: WriteMetadata


def transaction_version(write_version: int, part: int = CLOSING_PART) -> int:
    """Return the version of the transaction of a part."""
    return write_version * PARTS_PER_WRITE + part


def metadata_text(writes: Sequence[WriteMetadata], user_metadata: str = "") -> str:
    """Return the `userMetadata` of a commit.

    Raises:
        SinkError: the acknowledgements are too large for one commit.
    """
    if (size := sum(len(partition.model_dump_json()) for each in writes for partition in each.partitions)) > (
        MAX_METADATA_BYTES
    ):
        versions = ", ".join(str(write.version) for write in writes[:3]) + (", …" if len(writes) > 3 else "")
        raise SinkError(
            f"The acknowledgements of write {versions} have {size} bytes; a commit takes {MAX_METADATA_BYTES}.",
            "Write the records in more parts, or acknowledge fewer of them otherwise than by ACCEPT.",
        )
    text = _text(writes, user_metadata, leaves_out=set())
    return text if len(text) <= MAX_METADATA_BYTES else _text(writes, user_metadata, leaves_out={"accepted"})


def _text(writes: Sequence[WriteMetadata], user_metadata: str, leaves_out: set[str]) -> str:
    dumped = [write.model_dump(mode="json", exclude_defaults=True, exclude=leaves_out) for write in writes]
    fields: dict[str, Any] = {_WRITE: dumped[0] if len(dumped) == 1 else _of_several(dumped)}
    if user_metadata:
        fields[_USER] = user_metadata
    return json.dumps(fields, separators=(",", ":"))


def _of_several(writes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of several writes; most often their application ids differ in the last part only."""
    first = writes[0]["app_id"]
    prefix = first[: first.rfind("/") + 1]
    if not all(write["app_id"].startswith(prefix) for write in writes):
        prefix = ""
    return {_PREFIX: prefix, _WRITES: [{**each, "app_id": each["app_id"].removeprefix(prefix)} for each in writes]}


def _writes_of(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of each write of a commit."""
    if _WRITES not in fields:
        return [fields]
    return [{**each, "app_id": fields[_PREFIX] + each["app_id"]} for each in fields[_WRITES]]


def commits_of(lines: Iterable[str], table_version: int) -> list[WriteCommit]:
    """Return the writes of a commit from the lines of its file; empty if it is of no write."""
    for line in lines:
        if _WRITE not in line:
            continue
        try:
            text = json.loads(line).get("commitInfo", {}).get(_USER)
            writes = _writes_of(json.loads(text)[_WRITE])
            return [WriteCommit(table_version, WriteMetadata.model_validate(each)) for each in writes]
        except (ValueError, KeyError, TypeError, ValidationError):
            # Another program's metadata may have the same word.
            continue
    return []


def named_partitions(acknowledgements: Iterable[Acknowledgement]) -> list[ResolvedPartition]:
    """Return acknowledgements as a commit names them: ascending, neighbours of one kind as one range."""
    runs: dict[tuple[str, int], RangeMap[tuple[AcknowledgeType, int | None]]] = {}
    for ack in acknowledgements:
        of_partition = runs.setdefault(ack.key, RangeMap())
        of_partition.assign(ack.first_offset, ack.last_offset, (ack.acknowledge_type, ack.redelivery_delay_ms))
    return [
        ResolvedPartition(
            topic_id=topic_id,
            partition_index=partition,
            ranges=[
                ResolvedRange(first_offset=first, last_offset=last, acknowledge_type=kind, redelivery_delay_ms=delay_ms)
                for first, last, (kind, delay_ms) in of_partition
            ],
        )
        for (topic_id, partition), of_partition in sorted(runs.items())
    ]


def accepted_ranges(acknowledgements: Iterable[Acknowledgement]) -> list[AcceptedRange]:
    """Return the records that acknowledgements accept, ascending, neighbours as one range."""
    accepted = (ack for ack in acknowledgements if ack.acknowledge_type is AcknowledgeType.ACCEPT)
    return [
        (named.topic_id, named.partition_index, each.first_offset, each.last_offset)
        for named in named_partitions(accepted)
        for each in named.ranges
    ]


def has_part(commits: Iterable[WriteCommit], part: WritePart) -> bool:
    """Return True if commits of a write have the rows of a part."""
    return any(commit.metadata.part == part.part and not commit.metadata.is_fence for commit in commits)


def resolution(
    write: Written, table_id: str, commits: Sequence[WriteCommit], *, is_closed: bool
) -> ResolveWriteRequest:
    """Return the message of what the commits of a write say: the union of its parts; fences have nothing.

    Args:
        commits: all of them that the table's current state contains.
        is_closed: True if nothing else of the write can get into the table.
    """
    with_rows = [commit.metadata for commit in commits if not commit.metadata.is_fence]
    accepts_others = any(not metadata.names_all for metadata in with_rows)
    ranges: dict[tuple[str, int], ResolvedPartition] = {}
    for metadata in with_rows:
        for named in metadata.partitions:
            kept = ranges.setdefault(
                (named.topic_id, named.partition_index),
                ResolvedPartition(topic_id=named.topic_id, partition_index=named.partition_index),
            )
            kept.ranges.extend(named.ranges)
    for kept in ranges.values():
        kept.ranges.sort(key=lambda each: each.first_offset)
    return ResolveWriteRequest(
        app_id=write.app_id,
        version=write.version,
        table_id=table_id,
        is_closed=is_closed,
        others=AcknowledgeType.ACCEPT if accepts_others and is_closed else None,
        partitions=list(ranges.values()),
    )
