"""The commits of a write in a Delta table: their versions, and what their `userMetadata` says.

A commit has the transaction (application id, 1,024 times the version + part). Only the last part, 1,023, closes the
write: Delta refuses every transaction that is not above it. A fence has that part, too, and no rows. So a write in one
commit has the part 1,023, and one in several commits has rising parts.

`userMetadata` is a JSON object; the key `sharegroup.write` is ours, and the user's own text is beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import Field, ValidationError

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import SinkError
from sharegroup.protocol.messages import Int64, Message
from sharegroup.protocol.sink_writes import AppId
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolveWriteRequest

PARTS_PER_WRITE = 1_024
CLOSING_PART = PARTS_PER_WRITE - 1
"""The part after which nothing of a write can get into the table."""
MAX_METADATA_BYTES = 262_144
"""Most bytes of a commit's acknowledgements: each reader of the log parses them."""

_WRITE = "sharegroup.write"
_USER = "userMetadata"


class Written(Protocol):
    """The names of a write, in a fetch response or among those that are to be looked up."""

    app_id: str
    version: int


class WriteMetadata(Message):
    """The part of a commit's `userMetadata` that names its write, and the acknowledgements of its records."""

    app_id: AppId = Field(description="Application id of the write.")
    version: Int64 = Field(description="Its version.")
    part: int = Field(default=CLOSING_PART, ge=0, le=CLOSING_PART, description="Part of the write.")
    is_fence: bool = Field(default=False, description="True if the commit has no rows, and keeps the write out.")
    names_all: bool = Field(default=False, description="True if all records of the commit are named, as in a part.")
    partitions: list[ResolvedPartition] = Field(
        default_factory=list, description="Acknowledgements; records that are not named are accepted."
    )

    def text(self, user_metadata: str = "") -> str:
        """Return the commit's `userMetadata`.

        Raises:
            SinkError: the acknowledgements are too large for one commit.
        """
        fields: dict[str, Any] = {_WRITE: self.model_dump(mode="json", exclude_defaults=True)}
        if user_metadata:
            fields[_USER] = user_metadata
        text = json.dumps(fields)
        if (size := len(text.encode())) > MAX_METADATA_BYTES:
            raise SinkError(
                f"The acknowledgements of write {self.version} have {size} bytes; a commit takes {MAX_METADATA_BYTES}.",
                "Write the records in more parts, or acknowledge fewer of them otherwise than by ACCEPT.",
            )
        return text


class WriteCommit(NamedTuple):
    """A commit of a write in the log of the table."""

    table_version: int
    metadata: WriteMetadata


def transaction_version(write_version: int, part: int = CLOSING_PART) -> int:
    """Return the version of the transaction of a part."""
    return write_version * PARTS_PER_WRITE + part


def commit_of(lines: Iterable[str], table_version: int) -> WriteCommit | None:
    """Return the write of a commit from the lines of its file; None if it is of no write."""
    for line in lines:
        if _WRITE not in line:
            continue
        try:
            text = json.loads(line).get("commitInfo", {}).get(_USER)
            fields = json.loads(text)[_WRITE]
            return WriteCommit(table_version, WriteMetadata.model_validate(fields))
        except (ValueError, KeyError, TypeError, ValidationError):
            # Another program's metadata may have the same word.
            continue
    return None


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
