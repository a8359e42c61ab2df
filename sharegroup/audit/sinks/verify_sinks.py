"""`verify` of sinks: the writes of the state table against the history of each sink, and against its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharegroup.audit.history.row_source import RowSource
from sharegroup.audit.sinks.partition_writes import partition_writes
from sharegroup.audit.sinks.reconcile import Reconciliation, SinkVerification
from sharegroup.audit.sinks.sink_history import SinkAudit
from sharegroup.errors import SinkError
from sharegroup.protocol.rows import RecordType
from sharegroup.state.row_filter import RowFilter


def verify_sinks(
    source: RowSource,
    addresses: Iterable[str],
    group_id: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> SinkVerification:
    """Compare sinks with the state table, by commit, and by record where a sink has the columns for it.

    Args:
        addresses: path or URI of each sink.
        group_id: only the writes of this group.
        storage_options: options of delta-rs for the stores of all sinks.

    Raises:
        SinkError: a sink is no Delta table, or cannot be read.
    """
    fences = source.rows(RowFilter(record_types=[RecordType.FENCE]))
    lost = {earlier["state_id"] for fence in fences for earlier in fence.payload.get("earlier_states", ())}
    reconciliation = Reconciliation(source.by_partition(RowFilter(group_id=group_id), partition_writes), lost)
    for address in addresses:
        audit = SinkAudit(address, storage_options)
        history = audit.history()
        reconciliation.compare(history)
        try:
            rows = audit.records()
        except SinkError as error:
            # By commit the sink is compared nevertheless.
            reconciliation.result.unread_rows.append(str(error))
        else:
            if rows is not None:
                reconciliation.compare_rows(history, rows)
    return reconciliation.finish()
