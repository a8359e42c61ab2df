"""Keep the state small: snapshot the table, prune what is past the audit retention, merge small files, clean the log,
vacuum.

It may run at any time, beside a processor or without one; no JVM is needed. Deleted rows leave the disk five minutes
later at the earliest, with the next run's vacuum or the processor's own. Example:

    python jobs/state_maintenance.py --config conf/local.yaml --set audit.retention.ms=86400000 --dry-run
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sharegroup.config.loader import Settings, load_settings
from sharegroup.errors import ShareGroupError
from sharegroup.exit_code import ExitCode, exit_code_of, exit_codes_text
from sharegroup.processor.message_retention import delete_expired_records, delete_old_messages
from sharegroup.state.maintenance import FileCount, clean_log, compact, table_size, take_snapshot, vacuum
from sharegroup.state.pruning import prune


def main(argv: Sequence[str] | None = None) -> int:
    """Maintain the state table."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=exit_codes_text(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="configuration file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--dry-run", action="store_true", help="change nothing; say what would be done")
    options = parser.parse_args(argv)
    try:
        maintain(load_settings(options.config, os.environ, options.set), options.dry_run)
    except ShareGroupError as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_code_of(error)
    return ExitCode.OK


def maintain(settings: Settings, is_dry_run: bool) -> None:
    """Do one step after the other, and print a line for each."""
    path, now_ms = settings.processor.state_table_path, time.time_ns() // 1_000_000
    interval_ms = settings.broker.share_coordinator_cold_partition_snapshot_interval_ms
    with Console(stderr=True).status("reading the state table") as status:
        print(f"before: {sizes(path)}")
        status.update("taking a snapshot")
        print(f"snapshot: {take_snapshot(path, now_ms - interval_ms, is_dry_run=is_dry_run):,} rows written")
        status.update("pruning")
        pruned = prune(path, now_ms - settings.processor.audit_retention_ms, is_dry_run=is_dry_run)
        types = ", ".join(f"{name} {count:,}" for name, count in pruned.row_count_by_type.items())
        dates = f" of {pruned.first_date} to {pruned.last_date}: {types}" if types else ""
        print(f"pruned: {sum(pruned.row_count_by_type.values()):,} rows{dates}")
        status.update("deleting old messages")
        print(f"messages: {delete_old_messages(settings.processor, now_ms, is_dry_run=is_dry_run):,} deleted")
        print(f"records: {delete_expired_records(settings.processor, is_dry_run=is_dry_run):,} deleted")
        status.update("merging small files")
        print(f"merged: {compact(path, is_dry_run=is_dry_run):,} files")
        if not is_dry_run:
            status.update("writing a checkpoint of the log")
            clean_log(path)
        status.update("vacuuming")
        print(f"deleted: {text(vacuum(path, is_dry_run=is_dry_run))}")
        print(f"{'nothing was changed' if is_dry_run else 'after'}: {sizes(path)}")


def sizes(path: str) -> str:
    """Return the size of the table as text."""
    size = table_size(path)
    return f"live {text(size.live)}; with earlier versions {text(size.data)}; log {text(size.log)}"


def text(count: FileCount) -> str:
    """Return a number of files and their bytes as text."""
    return f"{count.files:,} files, {count.size_bytes:,} bytes"


if __name__ == "__main__":
    sys.exit(main())
