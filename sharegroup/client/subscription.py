"""What a consumer is subscribed to: topics by name, or all whose names match a pattern."""

from __future__ import annotations

import logging
import re

from sharegroup.client.kafka_types import INVALID_ARGUMENT
from sharegroup.errors import LogUnavailableError
from sharegroup.logs.port import Log

_INTERNAL_PREFIX = "__"
"""Topics of the machinery; a pattern leaves them out, as with the Java client's `exclude.internal.topics`."""

_logger = logging.getLogger(__name__)


class Subscription:
    """Names, or a pattern and the names that matched when it was last looked at.

    Args:
        log: has the topics.
        max_age_ms: how old the last look at the topics may be.
    """

    def __init__(self, log: Log, max_age_ms: int) -> None:
        self._log = log
        self._max_age_s = max_age_ms / 1000
        self._pattern: re.Pattern[str] | None = None
        self._looked_s = 0.0
        self.names: list[str] = []
        """The topics."""

    @property
    def is_none(self) -> bool:
        """Whether it names no topics and has no pattern."""
        return not self.names and self._pattern is None

    def change(self, topics: object, now_s: float) -> None:
        """Subscribe to these topics in place of the earlier ones.

        Args:
            topics: a list of names, or a compiled pattern that a whole name must match.
            now_s: seconds on a clock that does not go back.

        Raises:
            TypeError: neither a list of str nor a pattern of str.
            ValueError: a name is empty, or there twice.
            LogUnavailableError: the topics cannot be looked at.
        """
        if isinstance(topics, re.Pattern) and isinstance(topics.pattern, str):
            self.names = self._matching(topics)
            self._pattern, self._looked_s = topics, now_s
            return
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("expected list of topic unicode strings")
        if "" in topics or len(set(topics)) < len(topics):
            raise ValueError(f"Failed to subscribe: {INVALID_ARGUMENT}")
        self.names, self._pattern = list(topics), None

    def refresh(self, now_s: float) -> bool:
        """Look at the topics again when it is time to; whether other names match now."""
        if self._pattern is None or now_s < self._looked_s + self._max_age_s:
            return False
        self._looked_s = now_s
        before = self.names
        try:
            self.names = self._matching(self._pattern)
        except LogUnavailableError as error:
            _logger.warning("The topics cannot be looked at, and are the next time: %s", error)
        return self.names != before

    def next_look_ms(self, now_s: float) -> int | None:
        """Time until `refresh` looks at the topics again; None when it will not."""
        return None if self._pattern is None else max(round((self._looked_s + self._max_age_s - now_s) * 1000), 1)

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        names = (topic.name for topic in self._log.topics())
        return sorted(n for n in names if not n.startswith(_INTERNAL_PREFIX) and pattern.fullmatch(n))
