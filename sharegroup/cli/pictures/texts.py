"""Texts in pictures: times, and the names of members and of causes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

CAUSE_TEXTS: Mapping[str, str] = {
    "accept": "accepted",
    "release": "released",
    "reject": "rejected",
    "gap": "gap: no such record",
    "unread": "returned unread",
    "lock_timeout": "lock timed out",
    "session_close": "session closed",
    "member_silent": "member silent",
    "member_ended": "member's process ended",
    "not_written": "not in the sink",
    "in_doubt": "write in doubt",
    "log_start": "deleted from the log",
    "offset_reset": "offsets reset",
    "still_held": "still held",
    "state_removed": "state removed",
}
"""End of a lock → its text, in the order of legends."""

CAUSE_COLOURS: Mapping[str, str] = {
    "accept": "#2e9d5b",
    "release": "#3f8fd6",
    "reject": "#a763c9",
    "gap": "#8a8f98",
    "unread": "#58b7c9",
    "lock_timeout": "#e0483e",
    "session_close": "#e08a2e",
    "member_silent": "#d65f93",
    "member_ended": "#b5651d",
    "not_written": "#8c6d31",
    "in_doubt": "#7f7f3f",
    "log_start": "#6b7280",
    "offset_reset": "#6b7280",
    "still_held": "#c9b01f",
    "state_removed": "#6b7280",
}
"""End of a lock → a colour that can be seen on white and on black."""


def time_text(time_ms: int) -> str:
    """Return a time in UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def member_text(member_id: str, client_ids: Mapping[str, str]) -> str:
    """Return the name of a member: its client id, with the start of its member id."""
    client_id = client_ids.get(member_id, "")
    return f"{client_id} ({member_id[:8]})" if client_id else member_id


def duration_text(duration_ms: int) -> str:
    """Return a duration in its largest unit."""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if duration_ms >= size_ms:
            return f"{duration_ms / size_ms:,.1f} {unit}"
    return f"{duration_ms} ms"
