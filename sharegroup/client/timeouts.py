"""Timeouts of a consumer's calls, in seconds as confluent-kafka takes them."""

from __future__ import annotations

import math
from enum import Enum
from typing import SupportsFloat, SupportsIndex

Seconds = SupportsFloat | SupportsIndex
"""A time in seconds: an int, a float, a Decimal, a NumPy number, and so on."""


class ApiTimeout(Enum):
    """The timeout of a call that is given none."""

    DEFAULT = "default.api.timeout.ms"


def timeout_ms(timeout: Seconds) -> int | None:
    """Return the milliseconds of a timeout; None, for a negative or an infinite one, is endless.

    Raises:
        TypeError: it is no real number.
    """
    # Also text has a float value for `float`, but is none.
    if not hasattr(type(timeout), "__float__") and not hasattr(type(timeout), "__index__"):
        raise TypeError(f"must be real number, not {type(timeout).__name__}")
    seconds = float(timeout)
    return None if seconds < 0 or math.isinf(seconds) else round(seconds * 1000)
