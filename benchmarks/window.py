"""The responses of one window of an open loop, and how windows of several loaders come together."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Window:
    """The requests that fell due, and the responses that were seen, in one window of time.

    Times are on the monotonic clock, in seconds.

    Attributes:
        index: number of the window; -1 is the warm-up.
        offered: requests that fell due.
        backlog: requests that are due and not completed at the window's end.
        due_s: when each completed request was due.
        seen_s: when its response was seen.
        durable: 1 for each that had a durable effect.
        errors: error code → how many responses had it.
        lost: requests that were given up without a response.
    """

    index: int
    offered: int = 0
    backlog: int = 0
    due_s: array[float] = field(default_factory=lambda: array("d"))
    seen_s: array[float] = field(default_factory=lambda: array("d"))
    durable: bytearray = field(default_factory=bytearray)
    errors: Counter[int] = field(default_factory=Counter)
    lost: int = 0

    def add(self, due_s: float, seen_s: float, is_durable: bool) -> None:
        """Count a response."""
        self.due_s.append(due_s)
        self.seen_s.append(seen_s)
        self.durable.append(is_durable)

    @property
    def completed(self) -> int:
        """Responses that were seen."""
        return len(self.seen_s)

    @property
    def latencies_ms(self) -> list[float]:
        """From when each request was due to its response."""
        return [1_000 * (seen - due) for due, seen in zip(self.due_s, self.seen_s, strict=True)]

    @property
    def durable_latencies_ms(self) -> list[float]:
        """The same of requests that had a durable effect."""
        return [latency for latency, durable in zip(self.latencies_ms, self.durable, strict=True) if durable]


def merged(windows: Iterable[Window]) -> Window:
    """One window of all of them; its backlog is theirs together, which fits windows of one time."""
    together = Window(-1)
    for window in windows:
        together.index = window.index
        together.offered += window.offered
        together.backlog += window.backlog
        together.due_s.extend(window.due_s)
        together.seen_s.extend(window.seen_s)
        together.durable.extend(window.durable)
        together.errors.update(window.errors)
        together.lost += window.lost
    return together


def longest_silence_s(due_s: Sequence[float], seen_s: Sequence[float]) -> float:
    """The longest time in which requests waited and no response to any of them was seen.

    Args:
        due_s: when each request was due.
        seen_s: when its response was seen.
    """
    events = sorted([(seen, -1) for seen in seen_s] + [(due, 1) for due in due_s])
    waiting = 0
    longest_s = silent_since_s = 0.0
    for time_s, change in events:
        if change > 0:
            silent_since_s = silent_since_s if waiting else time_s
        else:
            longest_s = max(longest_s, time_s - silent_since_s)
            silent_since_s = time_s
        waiting += change
    return longest_s
