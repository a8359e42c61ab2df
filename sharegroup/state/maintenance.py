"""Upkeep of the state table: few large files in place of many small ones, and nothing kept that no version needs.

Rows only move from file to file, so upkeep may run beside a processor; their order comes from their columns.
"""

from __future__ import annotations

import logging

from deltalake import WriterProperties
from deltalake.exceptions import CommitFailedError

from sharegroup.state.delta_table import ROWS_PER_ROW_GROUP, open_table, translated

TARGET_FILE_BYTES = 16 * 1024 * 1024

_logger = logging.getLogger(__name__)


def compact(path: str) -> int:
    """Merge the small files of each date.

    Returns:
        How many files were merged; 0 when another process was merging them at the same time.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    with translated(path, "compacted"):
        try:
            metrics = open_table(path).optimize.compact(
                target_size=TARGET_FILE_BYTES,
                writer_properties=WriterProperties(max_row_group_size=ROWS_PER_ROW_GROUP),
            )
        except CommitFailedError as error:
            _logger.info("State table %s is being compacted by another process: %s", path, error)
            return 0
    return int(metrics["numFilesRemoved"])


def vacuum(path: str) -> int:
    """Delete the files that no version of the last hour needs.

    Returns:
        How many files were deleted.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    with translated(path, "vacuumed"):
        return len(open_table(path).vacuum(dry_run=False))
