"""The configurations of groups that may be in force at their leaders, for an auditor that follows the table."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.errors import ApiError
from sharegroup.protocol.group_records import ShareGroupConfig, ShareGroupRemoved, group_record
from sharegroup.protocol.messages import changed
from sharegroup.protocol.rows import RecordType, StateRow

_IN_FORCE_MS = 120_000
"""A leader has a configuration in less than this time after it was decided; an older one is not in force any more."""
_LIMIT_KEY = "share.delivery.count.limit"


class RecentConfigurations:
    """Follows the rows with the configurations of all groups.

    Args:
        broker: defaults and bounds that are in force.
    """

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._rows: dict[str, list[StateRow]] = {}
        self._highest_limits: dict[str, int] = {}

    def add(self, row: StateRow) -> None:
        """Add the configurations of a row; other records, and records that cannot be read, are ignored."""
        for overrides in _overrides(row):
            record = ShareGroupConfig(overrides=overrides)
            configuration = changed(
                row,
                record_type=RecordType.GROUP_METADATA,
                payload={"records": [record.model_dump(mode="json")]},
            )
            rows = self._rows.setdefault(row.group_id, [])
            rows.append(configuration)
            while len(rows) > 1 and rows[1].time_ms < row.time_ms - _IN_FORCE_MS:
                del rows[0]
            limit = self._limit(overrides)
            self._highest_limits[row.group_id] = max(self._highest_limits.get(row.group_id, 0), limit)

    def of(self, group_id: str, now_ms: int) -> list[StateRow]:
        """Return the configurations that may be in force at a time, in their order.

        Deliveries that were made under a higher limit stay counted: if there was one, the first configuration has it.
        """
        rows = self._rows.get(group_id, [])
        if not rows:
            return []
        recent = [
            row
            for row, following in zip(rows, [*rows[1:], None], strict=True)
            if following is None or following.time_ms >= now_ms - _IN_FORCE_MS
        ]
        overrides = recent[0].payload["records"][0]["overrides"]
        highest = self._highest_limits[group_id]
        if highest <= max(self._limit(row.payload["records"][0]["overrides"]) for row in recent):
            return recent
        record = ShareGroupConfig(overrides={**overrides, _LIMIT_KEY: str(highest)})
        return [changed(recent[0], payload={"records": [record.model_dump(mode="json")]}), *recent]

    def _limit(self, overrides: dict[str, str]) -> int:
        try:
            return effective_group_config(self._broker, overrides).share_partition_limits.delivery_count_limit
        except ApiError:
            return 0


def _overrides(row: StateRow) -> Iterator[dict[str, str]]:
    for fields in row.payload.get("records", ()):
        try:
            record = group_record(fields)
        except (KeyError, ValidationError):
            continue
        if isinstance(record, ShareGroupConfig):
            yield dict(record.overrides)
        elif isinstance(record, ShareGroupRemoved):
            yield {}
