"""Files of recorded vectors: JSON Lines, one kind of vector for each pattern of names."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

OWN_VECTORS = Path(__file__).resolve().parent / "vectors"
RANDOM_SCENARIOS = OWN_VECTORS / "random_public.jsonl.gz"
"""300 random scenarios of Kafka's SharePartition, whose writes complete at once."""
FILE_PATTERNS = {
    "scenario": ("scenarios_*.jsonl", "random_*.jsonl"),
    "combination": ("combiner_*.jsonl",),
    "conversation": ("coordinator_*.jsonl", "coordinator_*.jsonl.gz"),
}
"""Argument of a test → the files that it gets the lines of, one line a test."""


def read_lines(folder: Path, argument: str) -> list[dict[str, Any]]:
    """All lines for one argument, file by file."""
    files = sorted(file for pattern in FILE_PATTERNS[argument] for file in folder.glob(pattern))
    return [line for file in files for line in read_file(file)]


def read_file(file: Path) -> list[dict[str, Any]]:
    """Read all lines of a file, which is compressed where it would be too large."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
