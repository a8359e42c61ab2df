"""Rows that several jobs use: computed once, so that all of them get the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows from the first job that computes them on; those that the application keeps itself stay so."""
    is_ours = not rows.is_cached
    if is_ours:
        rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield rows
    finally:
        if is_ours:
            rows.unpersist()
