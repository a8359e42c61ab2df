"""Which records of transactions the members of a group are given."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """`share.isolation.level` of a group (KIP-932); a read of a log takes the same, as `isolation.level` in Kafka."""

    READ_UNCOMMITTED = "read_uncommitted"
    """All of them, aborted ones too, up to the end offset."""
    READ_COMMITTED = "read_committed"
    """Committed ones only, up to the last stable offset."""
