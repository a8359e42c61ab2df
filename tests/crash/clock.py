"""A machine's clock that tests can move: all processes of one folder read the same shift."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Members follow the clock, too, and need no Spark.
    from pyspark.sql import SparkSession

_NAME = "clock-shift-ms"


def shift(folder: Path, by_ms: int) -> None:
    """Let the wall clock of all processes of a folder jump, so that it is off by this much."""
    new = folder / f"{_NAME}.new"
    new.write_text(str(by_ms))
    new.replace(folder / _NAME)


def follow(folder: Path) -> None:
    """Let Python's wall clock in this process follow the shift from now on."""
    path = folder / _NAME
    real_time_ns = time.time_ns

    def time_ns() -> int:
        return real_time_ns() + _shift_ms(path) * 1_000_000

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


def follow_in_query(spark: SparkSession) -> None:
    """Let the batch clock of the one query that runs be Python's wall clock from now on."""
    (query,) = spark.streams.active
    execution = query._jsq.streamingQuery()
    kind = execution.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getType().getName() == _QueryClock.Java.implements[0]:
                field.setAccessible(True)
                field.set(execution, _QueryClock())
        kind = kind.getSuperclass()


class _QueryClock:
    """A clock of Spark's that asks Python for the time."""

    class Java:
        implements = ("org.apache.spark.util.Clock",)

    def getTimeMillis(self) -> int:  # noqa: N802 - Spark's name
        return time.time_ns() // 1_000_000

    def nanoTime(self) -> int:  # noqa: N802 - Spark's name
        return time.monotonic_ns()

    def waitTillTime(self, target_ms: int) -> int:  # noqa: N802 - Spark's name
        raise NotImplementedError("A query whose trigger has no interval does not wait.")


def _shift_ms(path: Path) -> int:
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0
