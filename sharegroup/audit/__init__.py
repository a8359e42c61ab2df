"""The audits: answers about every record, from the state table, and about a Kafka cluster's share groups.

The exports of this package are the documented interface for programs and notebooks (docs/audits.md); the commands of
`sharegroup audit` call the same functions. A name is imported on its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.exports import lazy_exports

if TYPE_CHECKING:
    from sharegroup.audit.history.as_of import Selection as Selection
    from sharegroup.audit.history.as_of import as_of as as_of
    from sharegroup.audit.history.diff import diff as diff
    from sharegroup.audit.history.lineage import LineageRequest as LineageRequest
    from sharegroup.audit.history.lineage import lineage as lineage
    from sharegroup.audit.history.row_source import TableRows as TableRows
    from sharegroup.audit.kafka_state.imported_table import write_history as write_history
    from sharegroup.audit.kafka_state.kafka_groups import kafka_group as kafka_group
    from sharegroup.audit.kafka_state.kafka_history import kafka_history as kafka_history
    from sharegroup.audit.kafka_state.kafka_import import KafkaImport as KafkaImport
    from sharegroup.audit.kafka_state.kafka_source import broker_records as broker_records
    from sharegroup.audit.kafka_state.kafka_source import dump_records as dump_records
    from sharegroup.audit.kafka_state.kafka_source import topic_names as topic_names
    from sharegroup.audit.replay.request_replay import RequestReplay as RequestReplay
    from sharegroup.audit.replay.verify_requests import verify_requests as verify_requests
    from sharegroup.audit.replay.what_if import checked_limits as checked_limits
    from sharegroup.audit.replay.what_if import what_if as what_if
    from sharegroup.audit.statistics.stats import stats as stats
    from sharegroup.audit.verification.verify_table import verify_table as verify_table

__getattr__, __all__ = lazy_exports(__name__)
