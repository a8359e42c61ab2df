"""A data file of the state table, as the Delta log describes it, for all that read files or rewrite them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from sharegroup.state.schema import PARTITION_COLUMN

_BEFORE_ANY_COMMIT = -1
_AFTER_ANY_COMMIT = 1 << 63


class DataFile(NamedTuple):
    """A data file of the table.

    Attributes:
        date: the value of the partition column.
        row_count: number of rows; None when its statistics do not have it.
        bounds: "min." and "max." with the name of a column → its bound; some may be missing.
    """

    path: str
    date: str
    size_bytes: int
    row_count: int | None
    bounds: Mapping[str, Any]

    @classmethod
    def of_action(cls, add: Mapping[str, Any]) -> DataFile:
        """Return the file of an `add` action of the log."""
        statistics = json.loads(add.get("stats") or "{}")
        return cls(
            path=unquote(add["path"]),
            date=add.get("partitionValues", {}).get(PARTITION_COLUMN) or "",
            size_bytes=add["size"],
            row_count=statistics.get("numRecords"),
            bounds={
                f"{bound}.{column}": value
                for bound in ("min", "max")
                for column, value in statistics.get(f"{bound}Values", {}).items()
            },
        )

    def statistics(self) -> str:
        """Return its statistics as an `add` action has them."""
        columns = [name.removeprefix("min.") for name in self.bounds if name.startswith("min.")]
        least, most = (
            {column: self.bounds[f"{bound}.{column}"] for column in columns if f"{bound}.{column}" in self.bounds}
            for bound in ("min", "max")
        )
        return json.dumps(
            {
                "numRecords": self.row_count,
                "minValues": least,
                "maxValues": most,
                "nullCount": dict.fromkeys(columns, 0),
            },
            separators=(",", ":"),
        )

    def may_have(self, column: str, value: Any) -> bool:
        """Return False if the statistics show that no row has a value."""
        return self.overlaps(column, value, value)

    def overlaps(self, column: str, least: Any, greatest: Any) -> bool:
        """Return False if the statistics show that no row has a value in a range, whose ends are included."""
        low, high = self.bounds.get(f"min.{column}"), self.bounds.get(f"max.{column}")
        return (low is None or low <= greatest) and (high is None or high >= least)

    @property
    def lowest_commit_id(self) -> int:
        """Return the lowest commit id that it may hold."""
        commit_id = self.bounds.get("min.commit_id")
        return _BEFORE_ANY_COMMIT if commit_id is None else int(commit_id)

    @property
    def highest_commit_id(self) -> int:
        """Return the highest commit id that it may hold."""
        commit_id = self.bounds.get("max.commit_id")
        return _AFTER_ANY_COMMIT if commit_id is None else int(commit_id)

    @property
    def leader_epoch(self) -> int | None:
        """Return the highest leader epoch of its rows; None when its statistics do not have it."""
        epoch = self.bounds.get("max.leader_epoch")
        return None if epoch is None else int(epoch)
