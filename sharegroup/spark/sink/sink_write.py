"""SinkWrite: the write of one acquisition, in one commit or in parts.

Most often all results are in one commit, which closes the write. Its acknowledgements name the records that are not
accepted. A handler that failed is called with parts of the records; the results of each part are a commit that names
all of its records, with rising versions, and at last an empty commit closes the write with what was given up. Whatever
came in between, the log decides: only what it says is returned, and reported.

What may follow a failed commit: nothing of the closing version can land once a part is in, since both want one version
of the table; before the next part, an empty commit takes the transaction of the failed one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import groupby

from pyspark.sql import DataFrame

from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.sink_commits import (
    CLOSING_PART,
    MAX_METADATA_BYTES,
    AcceptedRange,
    WriteMetadata,
    accepted_ranges,
    named_partitions,
    resolution,
    transaction_version,
)
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError, ShareGroupError, SinkError, WriteFencedError
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolvedRange, ResolveWriteRequest
from sharegroup.spark.sink.kept_rows import kept
from sharegroup.spark.sink.spark_sink import MAX_USER_METADATA_BYTES, SparkSink
from sharegroup.spark.sink.table_log import NO_TRANSACTION, Snapshot

_MOST_BYTES_OF_RANGE = 250
"""Of a range in a commit's metadata, with its share-partition."""
_OTHER_BYTES = 8_192 + MAX_USER_METADATA_BYTES
"""Bytes for the rest of the metadata: the write's names, and the user's own."""
_RANGES_PER_COMMIT = (MAX_METADATA_BYTES - _OTHER_BYTES) // _MOST_BYTES_OF_RANGE


class WriteGivenUpError(SinkError):
    """The records of a write were given up before it began."""


class _TakenError(SinkError):
    """The table knows a transaction of the write that is not this run's: a fence's, or another run's."""


class SinkWrite:
    """The commits of one acquisition. One thread writes; any thread may give it up.

    Args:
        write: the write that the leader has named, and the sink's version when its records were fetched.
    """

    def __init__(self, sink: SparkSink, write: HeldWrite) -> None:
        self._sink = sink
        self._write = write.unresolved
        self._record_count = write.record_count
        self._lock = threading.Lock()
        self._has_begun = False
        self._is_given_up = False
        self._next_part = 0
        self._own_transaction = NO_TRANSACTION
        """The last transaction of this run that is in the table."""

    @property
    def has_begun(self) -> bool:
        """True if something of it may be in the table, so that only the table decides."""
        with self._lock:
            return self._has_begun

    def give_up(self) -> bool:
        """Let it not begin from now on; return True if it has begun, and may go on."""
        with self._lock:
            self._is_given_up = True
            return self._has_begun

    def commit(self, rows: DataFrame, acknowledgements: Iterable[Acknowledgement]) -> ResolveWriteRequest:
        """Commit all results, and close the write; return what the table says of it.

        Args:
            acknowledgements: of each of its records that this run holds.

        Raises:
            WriteFencedError: the write was fenced, or this is another table by now; it has nothing of the write.
            WriteGivenUpError: it was given up before it began.
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be read, or written.
            Exception: what Spark raises for the rows.
        """
        acknowledgements = list(acknowledgements)
        accepted = [ack for ack in acknowledgements if _is_accepted(ack)]
        others = [ack for ack in acknowledgements if not _is_accepted(ack)]
        # Records that this run does not hold any more are not accepted by being left out.
        names_all = sum(len(ack.offsets) for ack in acknowledgements) < self._record_count
        named = _one_commit(accepted) if names_all else []
        unnamed = [] if names_all else accepted_ranges(accepted)
        return self._finished(rows, others, named, names_all=names_all, unnamed=unnamed)

    def commit_part(self, rows: DataFrame, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Commit the results of some of the records.

        Args:
            acknowledgements: of each of these records, the accepted ones, too.

        Raises:
            Exception: as of `commit`.
        """
        acknowledgements = list(acknowledgements)
        accepted = [ack for ack in acknowledgements if _is_accepted(ack)]
        others = [ack for ack in acknowledgements if not _is_accepted(ack)]
        # Computed first: so a handler that fails costs no commit.
        with kept(rows):
            rows.count()
            # What is accepted is in the commit of its results; the rest needs no rows.
            first, *further = _chunks(acknowledgements) or [[]]
            if further:
                first, further = _one_commit(accepted), _chunks(others)
            self._commit_part(rows, first)
            for chunk in further:
                self._commit_part(None, chunk)

    def close(self, acknowledgements: Iterable[Acknowledgement]) -> ResolveWriteRequest:
        """Close a write that has begun, with the records that no part has; return what the table says of it.

        Args:
            acknowledgements: of these records; none is accepted, since there are no results of it.

        Raises:
            Exception: as of `commit`.
        """
        return self._finished(None, acknowledgements, [], names_all=True)

    def fence(self) -> ResolveWriteRequest:
        """Keep what is not in the table out of it; return what the table says of the write.

        Raises:
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be read or written.
        """
        with self._lock:
            self._has_begun = True
        return self._sink.resolve(self._write)

    def _finished(
        self,
        rows: DataFrame | None,
        others: Iterable[Acknowledgement],
        accepted: list[ResolvedPartition],
        *,
        names_all: bool,
        unnamed: Sequence[AcceptedRange] = (),
    ) -> ResolveWriteRequest:
        """Commit what does not fit into the metadata of the closing commit, then that one.

        Args:
            accepted: accepted records, if they are named: they are in the commit of their results.
            unnamed: accepted records, if they are not.
        """
        *before, last = _chunks(others) or [[]]
        if accepted:
            before, last = ([*before, last] if last else before), accepted
        try:
            for chunk in before:
                self._commit_part(None, chunk)
            metadata = WriteMetadata(
                app_id=self._write.app_id,
                version=self._write.version,
                names_all=names_all,
                partitions=last,
                accepted=list(unnamed),
            )
            table_version = self._committed(rows, metadata)
            resolved = self._read_back(metadata, table_version)
        except _TakenError:
            # Of a first run of the same write, or of one that fenced it.
            resolved = self.fence()
        except SinkError:
            raise
        except Exception as error:
            if not before:
                raise
            # Parts of it have decided on some records, so that no other parts may decide on them again.
            raise SinkError(f"Write {self._write.version} could not be completed: {error}") from error
        if not resolved.is_written:
            raise self._fenced()
        return resolved

    def _read_back(self, metadata: WriteMetadata, table_version: int | None) -> ResolveWriteRequest:
        snapshot = self._snapshot()
        if table_version is not None and self._own_transaction == NO_TRANSACTION:
            # One commit has all: one file is read. All transactions of a snapshot would cost a job.
            (*commits,) = self._sink.commits(self._write, snapshot, [table_version])
            if commits and commits[0].metadata.part == CLOSING_PART:
                return resolution(self._write, self._write.table_id, commits, is_closed=True)
        if not self._is_known(snapshot, metadata):
            raise SinkError(
                f"Write {self._write.version} is not in {self._sink.address}: another run of it has written parts, or "
                "the log was cleaned up since it began.",
                "Its records come again.",
            )
        return self._sink.resolution_of(self._write, snapshot)

    def _commit_part(self, rows: DataFrame | None, partitions: Sequence[ResolvedPartition]) -> None:
        part = self._next_part
        self._next_part += 1
        if part >= CLOSING_PART:
            raise SinkError(
                f"Write {self._write.version} has more than {CLOSING_PART} parts.", "Set max.poll.records to less."
            )
        metadata = WriteMetadata(
            app_id=self._write.app_id,
            version=self._write.version,
            part=part,
            names_all=True,
            partitions=list(partitions),
        )
        try:
            self._committed(rows, metadata)
        except ShareGroupError:
            raise
        except Exception:
            # It may still get into the table, unless its transaction is taken.
            fence = WriteMetadata(app_id=metadata.app_id, version=metadata.version, part=part, is_fence=True)
            self._sink.commit_empty(fence, self._snapshot())
            if not self._has_part(part):
                raise
        if not self._has_part(part):
            raise self._fenced()

    def _has_part(self, part: int) -> bool:
        """Return True if the table has a part; False if it has a fence, of the part or of the write."""
        snapshot = self._snapshot()
        transaction = transaction_version(self._write.version, part)
        if snapshot.transaction(self._write.app_id) != transaction:
            return False
        self._own_transaction = transaction
        versions = range(self._write.sink_version + 1, snapshot.version + 1)
        commits = self._sink.commits(self._write, snapshot, versions)
        return any(commit.metadata.part == part and not commit.metadata.is_fence for commit in commits)

    def _committed(self, rows: DataFrame | None, metadata: WriteMetadata) -> int | None:
        """Commit once; return the version of the table, None if it is not known.

        Raises:
            _TakenError: the table has a transaction of the write that is not of this run.
        """
        snapshot = self._snapshot()
        known = snapshot.transaction(self._write.app_id)
        if known >= transaction_version(self._write.version, 0) and known != self._own_transaction:
            raise _TakenError(f"Write {self._write.version} is in {self._sink.address}, of another run.")
        with self._lock:
            if self._is_given_up and not self._has_begun:
                raise WriteGivenUpError(f"Write {self._write.version} was given up.")
            self._has_begun = True
        if rows is None:
            self._sink.commit_empty(metadata, snapshot)
            return None
        table_version = self._sink.commit_rows(rows, metadata)
        if table_version is None and self._sink.merges and not self._is_known(after := self._snapshot(), metadata):
            # A MERGE that changes nothing makes no commit.
            self._sink.commit_empty(metadata, after)
        return table_version

    def _is_known(self, snapshot: Snapshot, metadata: WriteMetadata) -> bool:
        expected = transaction_version(metadata.version, metadata.part)
        return snapshot.transaction(metadata.app_id) >= expected

    def _snapshot(self) -> Snapshot:
        return self._sink.snapshot_for(self._write)

    def _fenced(self) -> WriteFencedError:
        return WriteFencedError(
            f"Write {self._write.version} of {self._write.app_id} was fenced in {self._sink.address}: its locks had "
            "ended.",
            "Its records come again.",
        )


def _chunks(acknowledgements: Iterable[Acknowledgement]) -> list[list[ResolvedPartition]]:
    """Divide acknowledgements so that each group fits into the metadata of a commit."""
    named = [(partition, each) for partition in named_partitions(acknowledgements) for each in partition.ranges]
    return [_grouped(named[start : start + _RANGES_PER_COMMIT]) for start in range(0, len(named), _RANGES_PER_COMMIT)]


def _one_commit(acknowledgements: Iterable[Acknowledgement]) -> list[ResolvedPartition]:
    """Return what one commit names.

    Raises:
        InvalidRequestError: it is too much; results of fewer records need less.
    """
    chunks = _chunks(acknowledgements)
    if len(chunks) > 1:
        raise InvalidRequestError(
            f"The accepted records are more than {_RANGES_PER_COMMIT} ranges of offsets, too many for one commit.",
            "Set max.poll.records to less.",
        )
    return chunks[0] if chunks else []


def _grouped(named: Iterable[tuple[ResolvedPartition, ResolvedRange]]) -> list[ResolvedPartition]:
    return [
        ResolvedPartition(topic_id=topic_id, partition_index=partition, ranges=[each for _, each in of_partition])
        for (topic_id, partition), of_partition in groupby(named, lambda of: (of[0].topic_id, of[0].partition_index))
    ]


def _is_accepted(acknowledgement: Acknowledgement) -> bool:
    return acknowledgement.acknowledge_type is AcknowledgeType.ACCEPT
