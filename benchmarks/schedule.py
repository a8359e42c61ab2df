"""The open-loop schedule: requests fall due at random times, however late the responses to earlier ones are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto


class RequestKind(Enum):
    """The effect that a request shall have."""

    DURABLE = auto()
    """A fetch that acquires records, or the acknowledgement that accepts them."""
    HEARTBEAT = auto()
    EMPTY_FETCH = auto()
    """A fetch of a topic without records."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of the schedule.

    Attributes:
        due_s: when it is due, in seconds after the start.
    """

    due_s: float
    kind: RequestKind


def arrivals(rate_per_s: float, duration_s: float, seed: int, durable_share: float = 0.5) -> Iterator[Arrival]:
    """Draw the requests of a Poisson process, in the order of their times.

    Those without a durable effect are heartbeats and empty fetches, half and half.

    Args:
        rate_per_s: mean number of requests in a second.
        duration_s: requests are due before this time.
        seed: the same seed gives the same schedule.
        durable_share: part of the requests that shall have a durable effect, 0 to 1.
    """
    source = random.Random(seed)
    due_s = source.expovariate(rate_per_s)
    while due_s < duration_s:
        yield Arrival(due_s, _kind(source, durable_share))
        due_s += source.expovariate(rate_per_s)


def _kind(source: random.Random, durable_share: float) -> RequestKind:
    if source.random() < durable_share:
        return RequestKind.DURABLE
    return RequestKind.HEARTBEAT if source.random() < 0.5 else RequestKind.EMPTY_FETCH
