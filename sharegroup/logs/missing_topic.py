"""When a topic that lookups do not find counts as deleted: brokers' metadata lags, so one lookup proves nothing."""

from __future__ import annotations

from dataclasses import dataclass

MISSING_LOOKUPS = 3
MISSING_S = 3.0
"""A topic is deleted when as many lookups in a row, over as many seconds, did not find it."""


@dataclass(slots=True)
class MissingTopic:
    """The lookups in a row that did not find a topic, or any of several topics that are looked up together."""

    _lookup_count: int = 0
    _since_s: float = 0.0

    @property
    def is_missing(self) -> bool:
        """True if the latest lookup did not find it."""
        return self._lookup_count > 0

    def take_missing(self, now_s: float) -> bool:
        """Record a lookup without the topic; return True if it counts as deleted.

        Args:
            now_s: time of the lookup, in seconds of any clock that does not go back.
        """
        if not self._lookup_count:
            self._since_s = now_s
        self._lookup_count += 1
        return self._lookup_count >= MISSING_LOOKUPS and now_s - self._since_s >= MISSING_S

    def take(self) -> None:
        """Record a lookup with the topic."""
        self._lookup_count = 0
