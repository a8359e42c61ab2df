"""A consumer's subscription: topics by name, or all whose names match a pattern, looked up beside the application."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable

from sharegroup.client.kafka_exceptions import INVALID_ARGUMENT
from sharegroup.config.model import is_topic_name
from sharegroup.errors import InvalidTopicError, LogUnavailableError, ShareGroupError
from sharegroup.logs.port import Log
from sharegroup.protocol.group_messages import MAX_SUBSCRIBED_TOPICS

_INTERNAL_PREFIX = "__"
"""Prefix of internal topics; a pattern leaves them out, as with the Java client's `exclude.internal.topics`."""
_RETRY_S = 1.0
"""Longest time from a lookup that failed to the next one."""

_logger = logging.getLogger(__name__)


class Subscription:
    """Names, or a pattern and the names that matched at the last lookup.

    Args:
        max_age_ms: longest time between two lookups of the topics.
        on_listed: called by the thread of a lookup at its end.
    """

    def __init__(self, log: Log, max_age_ms: int, on_listed: Callable[[], None]) -> None:
        self._log = log
        self._max_age_s = max_age_ms / 1000
        self._on_listed = on_listed
        self._pattern: re.Pattern[str] | None = None
        self._next_lookup_s = 0.0
        self._is_listing = False
        self._listed: list[str] | ShareGroupError | None = None
        self._impossible: list[str] = []
        """Names that no topic can have, and that were not reported yet."""
        self.names: list[str] = []
        """The topics."""

    @property
    def is_none(self) -> bool:
        """True if it names no topics and has no pattern."""
        return not self.names and self._pattern is None

    @property
    def has_listed(self) -> bool:
        """True if `refresh` has the result of a lookup to take."""
        return self._pattern is not None and self._listed is not None

    def change(self, topics: object, now_s: float) -> None:
        """Subscribe to these topics, and unsubscribe from the earlier ones.

        Args:
            topics: a list of names, or a compiled pattern that a whole name must match; `refresh` brings its names.
            now_s: seconds on a monotonic clock.

        Raises:
            TypeError: neither a list of str nor a pattern of str.
            ValueError: a name is empty, or is there twice.
        """
        self._impossible = []
        if isinstance(topics, re.Pattern) and isinstance(topics.pattern, str):
            self.names, self._pattern, self._listed, self._next_lookup_s = [], topics, None, now_s
            self.refresh(now_s)
            return
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("expected list of topic unicode strings")
        if "" in topics or len(set(topics)) < len(topics):
            raise ValueError(f"Failed to subscribe: {INVALID_ARGUMENT}")
        self.names, self._pattern = list(topics), None
        self._impossible = [name for name in topics if not is_topic_name(name)]

    def check_names(self) -> None:
        """Report names that no topic can have, once for each subscription; the other topics are not affected.

        Raises:
            InvalidTopicError: there are some.
        """
        impossible, self._impossible = self._impossible, []
        if impossible:
            raise InvalidTopicError(
                f"Invalid topics: [{', '.join(impossible)}].",
                "A topic name has 1 to 249 letters, digits, '.', '_' or '-', and is neither '.' nor '..'.",
            )

    def refresh(self, now_s: float) -> bool:
        """Take the result of a lookup, and begin the next one if it is due; return True if other names match now.

        Raises:
            ShareGroupError: the topics cannot be listed, and a retry does not help.
        """
        if self._pattern is None:
            return False
        before = self.names
        listed, self._listed = self._listed, None
        if isinstance(listed, LogUnavailableError):
            _logger.warning("The topics cannot be listed, and are listed again: %s", listed)
            self._next_lookup_s = min(self._next_lookup_s, now_s + _RETRY_S)
        elif isinstance(listed, ShareGroupError):
            raise listed.with_traceback(None)
        elif listed is not None:
            self.names = self._matching(self._pattern, listed)
        if not self._is_listing and now_s >= self._next_lookup_s:
            self._is_listing, self._next_lookup_s = True, now_s + self._max_age_s
            threading.Thread(target=self._list, name="share-group-topics", daemon=True).start()
        return self.names != before

    def next_refresh_ms(self, now_s: float) -> int | None:
        """Return the time until `refresh` lists the topics again; None if it will not, or does so now."""
        if self._pattern is None or self._is_listing:
            return None
        return max(round((self._next_lookup_s - now_s) * 1000), 1)

    def _list(self) -> None:
        listed: list[str] | ShareGroupError
        try:
            listed = [topic.name for topic in self._log.topics()]
        except ShareGroupError as error:
            listed = error
        # In this order a refresh in between misses nothing: it has the time of the next lookup, or the result.
        self._is_listing = False
        self._listed = listed
        self._on_listed()

    def _matching(self, pattern: re.Pattern[str], names: list[str]) -> list[str]:
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
