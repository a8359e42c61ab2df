"""The history of a sink, from the files of its Delta log: commits of writes, and what a RESTORE has undone.

Only commits that the present state contains count. Each state follows from the one before it, or, by a RESTORE, from
an earlier one: what lies between is undone, although its transactions stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from sharegroup.client.sink_commits import WriteCommit, commits_of
from sharegroup.errors import SinkError

RECORD_COLUMNS = ("topic", "partition", "offset")
"""Columns that name the record of a row, where a sink has them."""
NO_COMMIT = -1

_LOG = "_delta_log"
_SUFFIX = ".json"


@dataclass
class SinkHistory:
    """The history of a sink in its log.

    Attributes:
        first_version: its oldest commit that is not cleaned up.
        times_ms: version of the table → time of its commit; epoch ms.
        commits: the writes of each commit, by version of the table; fences are among them.
        undone: versions of the table that a RESTORE has undone.
    """

    address: str
    table_id: str
    version: int
    first_version: int
    commits: list[WriteCommit] = field(default_factory=list)
    undone: set[int] = field(default_factory=set)
    times_ms: dict[int, int] = field(default_factory=dict)


class SinkAudit:
    """A sink that is read.

    Args:
        storage_options: options of delta-rs for its store.

    Raises:
        SinkError: it is no Delta table, or cannot be read.
    """

    def __init__(self, address: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._address = address
        self._options = dict(storage_options or {})
        try:
            self._table = DeltaTable(address, storage_options=self._options)
        except DeltaError as error:
            raise SinkError(f"{address} cannot be read as a Delta table: {error}", "Name a sink of members.") from error
        self._added_at: dict[str, int] = {}
        """Data file → the commit of a write that added it."""

    def history(self) -> SinkHistory:
        """Read the log."""
        table_id, tip = str(self._table.metadata().id), self._table.version()
        history = SinkHistory(self._address, table_id, tip, tip + 1)
        restored_from: dict[int, int] = {}
        times_ms: list[tuple[int, int]] = []
        for version, lines in self._log_files(tip):
            history.first_version = min(history.first_version, version)
            info = _commit_info(lines)
            times_ms.append((_time_ms(info), version))
            if (target := _restored_version(info, times_ms)) is not None:
                restored_from[version] = target
            if commits := commits_of(lines, version):
                history.commits += commits
                self._note_files(lines, version)
        history.times_ms = {version: time_ms for time_ms, version in times_ms}
        history.undone = set(range(history.first_version, tip + 1)) - set(_present(tip, restored_from))
        return history

    def records(self) -> pa.Table | None:
        """Return topic, partition and offset of each row, and the commit that added it; None without such columns.

        The commit is `NO_COMMIT` where the row's file is of no write: another program, or an OPTIMIZE, wrote it.

        Raises:
            SinkError: the table has a feature that this reader does not have, as deletion vectors.
        """
        if not {field.name for field in self._table.schema().fields}.issuperset(RECORD_COLUMNS):
            return None
        try:
            dataset = self._table.to_pyarrow_dataset()
        except DeltaError as error:
            raise SinkError(f"The rows of {self._address} cannot be read by delta-rs: {error}") from error
        pieces = []
        for fragment in dataset.get_fragments():
            rows = fragment.to_table(columns=list(RECORD_COLUMNS))
            rows = pa.table(
                {
                    "topic": pc.cast(rows["topic"], pa.string()),
                    "partition": pc.cast(rows["partition"], pa.int32()),
                    "offset": pc.cast(rows["offset"], pa.int64()),
                }
            )
            commit = self._added_at.get(unquote(fragment.path), NO_COMMIT)
            pieces.append(rows.append_column("commit", pa.array([commit] * rows.num_rows, pa.int64())))
        return pa.concat_tables(pieces) if pieces else None

    def _log_files(self, tip: int) -> Iterator[tuple[int, list[str]]]:
        files = pa_fs.PyFileSystem(DeltaStorageHandler.from_table(self._table._table, self._options))
        for info in sorted(files.get_file_info(pa_fs.FileSelector(_LOG)), key=lambda each: each.base_name):
            stem = info.base_name.removesuffix(_SUFFIX)
            if info.base_name.endswith(_SUFFIX) and stem.isdigit() and int(stem) <= tip:
                with files.open_input_file(info.path) as file:
                    yield int(stem), file.read().decode().splitlines()

    def _note_files(self, lines: list[str], version: int) -> None:
        for line in lines:
            if line.startswith('{"add"'):
                self._added_at[unquote(json.loads(line)["add"]["path"])] = version


def _present(tip: int, restored_from: dict[int, int]) -> Iterator[int]:
    """Yield the versions that the present state follows from."""
    version = tip
    while version >= 0:
        yield version
        version = restored_from.get(version, version - 1)


def _commit_info(lines: list[str]) -> dict[str, Any]:
    for line in lines:
        if "commitInfo" in line:
            fields: dict[str, Any] = json.loads(line).get("commitInfo") or {}
            if fields:
                return fields
    return {}


def _time_ms(info: dict[str, Any]) -> int:
    return int(info.get("inCommitTimestamp") or info.get("timestamp") or 0)


def _restored_version(info: dict[str, Any], times_ms: list[tuple[int, int]]) -> int | None:
    """Return the version that a RESTORE went back to; None if a commit is no RESTORE."""
    if info.get("operation") != "RESTORE":
        return None
    parameters = info.get("operationParameters") or {}
    version = parameters.get("version")
    if version is not None and str(version) not in ("", "null"):
        return int(version)
    text = str(parameters.get("timestamp") or parameters.get("datetime") or "")
    at_ms = int(text) if text.isdigit() else _epoch_ms(text)
    return max((version for time_ms, version in times_ms[:-1] if time_ms <= at_ms), default=-1)


def _epoch_ms(text: str) -> int:
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
