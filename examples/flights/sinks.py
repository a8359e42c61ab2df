"""The Delta tables that members write flown flights into, and how often each holds which record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

SINK_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("delivery_count", pa.int16()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_time", pa.float64()),
        ("dep_delay", pa.float64()),
        ("arr_delay", pa.float64()),
    ]
)


def create_sink(path: Path) -> None:
    """Create an empty sink for a Python member."""
    DeltaTable.create(str(path), SINK_SCHEMA)


def copies(paths: Iterable[Path], record_count: Mapping[int, int]) -> dict[int, np.ndarray]:
    """Partition → how often each offset stands in the sinks together.

    Args:
        record_count: partition → end offset.
    """
    counts = {partition: np.zeros(count, dtype=np.int64) for partition, count in record_count.items()}
    for path in paths:
        columns = DeltaTable(str(path)).to_pyarrow_table(columns=["partition", "offset"])
        partitions, offsets = (columns.column(name).to_numpy() for name in ("partition", "offset"))
        for partition, count in counts.items():
            count += np.bincount(offsets[partitions == partition], minlength=len(count))
    return counts
