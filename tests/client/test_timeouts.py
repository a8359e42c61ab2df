"""Timeouts as confluent-kafka takes them: every real number, in seconds."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy
import pytest

from sharegroup.client.timeouts import Seconds, timeout_ms


@pytest.mark.parametrize(
    ("timeout", "expected_ms"),
    [
        (2, 2_000),
        (0.25, 250),
        (True, 1_000),
        (Decimal("0.5"), 500),
        (Fraction(1, 4), 250),
        (numpy.float32(0.5), 500),
        (numpy.int64(3), 3_000),
        (0, 0),
        (-1, None),
        (-0.1, None),
        (math.inf, None),
    ],
)
def test_every_real_number_is_a_timeout(timeout: Seconds, expected_ms: int | None) -> None:
    assert timeout_ms(timeout) == expected_ms


@pytest.mark.parametrize("timeout", ["1", b"1", None, 1j, []])
def test_what_is_no_real_number_is_refused(timeout: Seconds) -> None:
    with pytest.raises(TypeError, match=f"^must be real number, not {type(timeout).__name__}$"):
        timeout_ms(timeout)
