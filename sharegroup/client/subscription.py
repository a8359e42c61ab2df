"""A consumer's subscription: topics by name, or all whose names match a pattern."""

from __future__ import annotations

import logging
import re

from sharegroup.client.kafka_exceptions import INVALID_ARGUMENT
from sharegroup.errors import LogUnavailableError
from sharegroup.logs.port import Log
from sharegroup.protocol.group_messages import MAX_SUBSCRIBED_TOPICS

_INTERNAL_PREFIX = "__"
"""Prefix of internal topics; a pattern leaves them out, as with the Java client's `exclude.internal.topics`."""

_logger = logging.getLogger(__name__)


class Subscription:
    """Names, or a pattern and the names that matched at the last lookup.

    Args:
        max_age_ms: longest time between two lookups of the topics.
    """

    def __init__(self, log: Log, max_age_ms: int) -> None:
        self._log = log
        self._max_age_s = max_age_ms / 1000
        self._pattern: re.Pattern[str] | None = None
        self._listed_s = 0.0
        self.names: list[str] = []
        """The topics."""

    @property
    def is_none(self) -> bool:
        """True if it names no topics and has no pattern."""
        return not self.names and self._pattern is None

    def change(self, topics: object, now_s: float) -> None:
        """Subscribe to these topics, and unsubscribe from the earlier ones.

        Args:
            topics: a list of names, or a compiled pattern that a whole name must match.
            now_s: seconds on a monotonic clock.

        Raises:
            TypeError: neither a list of str nor a pattern of str.
            ValueError: a name is empty, or is there twice.
            LogUnavailableError: the topics cannot be listed.
        """
        if isinstance(topics, re.Pattern) and isinstance(topics.pattern, str):
            self.names = self._matching(topics)
            self._pattern, self._listed_s = topics, now_s
            return
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("expected list of topic unicode strings")
        if "" in topics or len(set(topics)) < len(topics):
            raise ValueError(f"Failed to subscribe: {INVALID_ARGUMENT}")
        self.names, self._pattern = list(topics), None

    def refresh(self, now_s: float) -> bool:
        """List the topics again if it is due; return True if other names match now."""
        if self._pattern is None or now_s < self._listed_s + self._max_age_s:
            return False
        self._listed_s = now_s
        before = self.names
        try:
            self.names = self._matching(self._pattern)
        except LogUnavailableError as error:
            _logger.warning("The topics cannot be listed; the next refresh lists them again: %s", error)
        return self.names != before

    def next_refresh_ms(self, now_s: float) -> int | None:
        """Return the time until `refresh` lists the topics again; None if it will not."""
        return None if self._pattern is None else max(round((self._listed_s + self._max_age_s - now_s) * 1000), 1)

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        names = (topic.name for topic in self._log.topics())
        matching = sorted(n for n in names if not n.startswith(_INTERNAL_PREFIX) and pattern.fullmatch(n))
        taken = matching[:MAX_SUBSCRIBED_TOPICS]
        if len(matching) > len(taken) and taken != self.names:
            _logger.warning(
                "%d topics match the pattern %s; a member subscribes to %d at most, the first by name: up to %s.",
                len(matching),
                pattern.pattern,
                MAX_SUBSCRIBED_TOPICS,
                taken[-1],
            )
        return taken
