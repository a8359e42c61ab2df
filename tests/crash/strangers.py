"""Strangers that change a sink while members write to it, with the same kind of writer as they.

They optimise it, vacuum it, add columns, merge and delete rows of their own, change a column of the members' rows, and
clean its log up.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, Field
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

STRANGER = -1
"""Partition of the strangers' rows."""
_PAUSE_S = 3.0
_AGE_S = 60 * 24 * 3_600
"""Beyond the retention of logs, 30 days."""


def disturb(table: str, number: int) -> None:
    """Do the next of several things to a table that members without Spark write to."""
    delta = DeltaTable(table)
    # It gives way to others: what it did not do this time, it does the next time.
    with suppress(DeltaError):
        match number % 5:
            case 0:
                delta.optimize.compact()
            case 1:
                delta.vacuum(dry_run=False)
            case 2:
                name = f"of_a_stranger_{uuid4().hex[:6]}"
                delta.alter.add_columns([Field(name, PrimitiveType("string"), nullable=True)])
            case 3:
                rows = pa.table({"partition": pa.array([STRANGER, 0], pa.int32()), "offset": [number, number]})
                merge = delta.merge(rows, "t.partition = s.partition AND t.offset = s.offset", "s", "t")
                updated = merge.when_matched_update({"size": "-1"})
                own = {"partition": "s.partition", "offset": "s.offset"}
                updated.when_not_matched_insert(own, f"s.partition = {STRANGER}").execute()
            case _:
                delta.delete(f"partition = {STRANGER}")


def clean_log(table: str, version: int) -> None:
    """Let the log of a table be cleaned up as if its commits before a version were old."""
    delta = DeltaTable(table)
    delta.create_checkpoint()
    old_s = time.time() - _AGE_S
    for path in Path(table, "_delta_log").glob("*.json"):
        if int(path.stem) < version:
            os.utime(path, (old_s, old_s))
    delta.cleanup_metadata()


def disturb_with_spark(spark: SparkSession, table: str) -> None:
    """Do such things again and again in a thread, until the program ends."""
    own = spark.newSession()

    def run() -> None:
        for number in itertools.count(random.randrange(5)):
            threading.Event().wait(_PAUSE_S)
            with suppress(PySparkException):
                own.sql(_statement(table, number))

    threading.Thread(target=run, name="stranger", daemon=True).start()


def _statement(table: str, number: int) -> str:
    name = f"delta.`{table}`"
    match number % 5:
        case 0:
            return (
                f"MERGE INTO {name} AS t USING (SELECT {STRANGER} AS partition, {number} AS offset UNION ALL "
                f"SELECT 0, {number}) AS s ON t.partition = s.partition AND t.offset = s.offset "
                f"WHEN MATCHED THEN UPDATE SET size = -1 WHEN NOT MATCHED AND s.partition = {STRANGER} "
                "THEN INSERT (partition, offset) VALUES (s.partition, s.offset)"
            )
        case 1:
            return f"OPTIMIZE {name}"
        case 2:
            return f"ALTER TABLE {name} ADD COLUMNS (of_a_stranger_{uuid4().hex[:6]} STRING)"
        case 3:
            return f"DELETE FROM {name} WHERE partition = {STRANGER}"
        case _:
            return f"VACUUM {name}"
