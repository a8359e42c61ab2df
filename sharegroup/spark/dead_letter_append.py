"""Appends dead letters: one that is too large for its topic with the copy of its record goes there without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sharegroup.errors import RecordTooLargeError
from sharegroup.logs.port import Log, NewRecord

NOT_COPIED_HEADER = "__dlq.errors.record.not.copied"
"""Header of ours: why a letter has neither key nor value, although the group has its records copied."""


def append_letters(log: Log, topic: str, letters: Mapping[int, Sequence[NewRecord]]) -> int:
    """Append letters by partition, together if the topic takes them all as they are.

    Returns:
        How many went without the copy of their record.

    Raises:
        LogError: they cannot be appended, or one is too large without a copy; some may have been appended.
    """
    try:
        log.append_all([(topic, partition, records) for partition, records in letters.items()])
    except RecordTooLargeError:
        return sum(_append_halves(log, topic, partition, records) for partition, records in letters.items())
    return 0


def _append_halves(log: Log, topic: str, partition: int, letters: Sequence[NewRecord]) -> int:
    """Append what may be too large: a log says neither which record it was, nor whether it was only their sum."""
    try:
        log.append(topic, partition, letters)
    except RecordTooLargeError as error:
        middle = len(letters) // 2
        if middle:
            halves = (letters[:middle], letters[middle:])
            return sum(_append_halves(log, topic, partition, half) for half in halves)
        letter = letters[0]
        if letter.key is None and letter.value is None:
            raise
        reason = (NOT_COPIED_HEADER, str(error).encode())
        log.append(topic, partition, [replace(letter, key=None, value=None, headers=(*letter.headers, reason))])
        return 1
    return 0
