"""Isolation levels: visibility of transactional records to the members of a group."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """`share.isolation.level` of a group (KIP-932); reads of a log use the same, as `isolation.level` in Kafka."""

    READ_UNCOMMITTED = "read_uncommitted"
    """All of them, aborted ones too, up to the end offset."""
    READ_COMMITTED = "read_committed"
    """Committed ones only, up to the last stable offset."""
