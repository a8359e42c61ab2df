"""The rows of share-partitions as Arrow columns, divided into segments."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.audit.verification.row_columns import SEGMENT
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import SHARE_PARTITION_TYPES


def in_segments(rows: pa.Table) -> pa.Table:
    """Return the rows of share-partitions, each with its segment; a snapshot is there twice."""
    kind = rows["record_type"]
    is_table_snapshot = pc.and_(pc.equal(kind, RecordType.TABLE_SNAPSHOT.value), pc.greater_equal(rows["partition"], 0))
    of_partitions = pc.is_in(kind, pa.array([member.value for member in sorted(SHARE_PARTITION_TYPES)]))
    rows = rows.filter(pc.or_(of_partitions, is_table_snapshot))
    own = rows.append_column(SEGMENT, rows["snapshot_epoch"])
    is_closing = pc.and_(
        pc.equal(rows["record_type"], RecordType.SHARE_SNAPSHOT.value), pc.greater(rows["snapshot_epoch"], 0)
    )
    closing = rows.filter(is_closing)
    before = pc.cast(pc.subtract(closing["snapshot_epoch"], 1), pa.int32())
    return pa.concat_tables([own, closing.append_column(SEGMENT, before)])
