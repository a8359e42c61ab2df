"""Tables that share consumers write their results to, and what the group has of it."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable

from sharegroup.client.message import Messages
from sharegroup.client.processor_groups import ProcessorGroups
from sharegroup.client.settings import ChannelTopics
from sharegroup.logs.local import LocalLog
from sharegroup.state.fold import FoldedGroup
from tests.client.processor_peer import BROKER
from tests.support.eventually import DEADLINE_S

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.string())])


def results(messages: Messages) -> list[dict[str, object]]:
    return [{"offset": each.offset(), "value": f"v{each.offset()}"} for each in messages]


def written(table: str) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["offset"].to_pylist())


def folded(log: LocalLog) -> FoldedGroup:
    """The group as its processor has it."""
    return ProcessorGroups(log, BROKER, "test", ChannelTopics(), DEADLINE_S).folded("g")
