"""How many records there were, told by the very job that read them: another one would read all of them again."""

from __future__ import annotations

import threading
import time

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

_COUNT = "count"
_PATIENCE_S = 1.0
"""Spark tells within milliseconds after the job."""
_LOOK_S = 0.005


class CountedRecords:
    """Records for a handler, which are counted by its first action on them.

    Args:
        records: the records.
    """

    def __init__(self, records: DataFrame) -> None:
        self._observation = Observation()
        self.records = records.observe(self._observation, F.count("*").alias(_COUNT))

    def count(self) -> int | None:
        """How many records the first action read; None when none tells, as those on `rdd` and `foreach` do not."""
        observed = self._observation._jo
        assert observed is not None
        give_up_at_s = time.monotonic() + _PATIENCE_S
        while not observed.future().isCompleted():
            if time.monotonic() >= give_up_at_s:
                return None
            threading.Event().wait(_LOOK_S)
        return int(self._observation.get[_COUNT])
