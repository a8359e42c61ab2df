"""Follow the state table: check each row as it is committed, and write findings and statistics to Delta tables.

It only reads the state table, and costs the processor nothing but the machine's time. Stopped, it continues where it
was: by commit id, whatever the upkeep did meanwhile. The tables `findings` and `statistics` are in the output folder,
with the checkpoint. The Java option spares a compilation that takes longer than this job's Java code. Example:

    spark-submit --driver-java-options -XX:TieredStopAtLevel=1 \\
        jobs/live_audit.py --config conf/local.yaml --output build/local/audit
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from sharegroup.config.loader import load_settings
from sharegroup.errors import StateTableError
from sharegroup.event_log import Event
from sharegroup.metrics.live_audit_metrics import LiveAuditMetrics
from sharegroup.spark.job import Job, end_process, job_parser
from sharegroup.spark.live_audit import LiveAuditor
from sharegroup.state.reader import StateTableReader

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the flags and run the auditor."""
    parser = job_parser(
        __doc__ or "",
        once="for a schedule: end when all commits have been checked",
        wait="how long to wait for the state table, which the first processor creates",
        wait_s=60,
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder of tables and checkpoint")
    parser.add_argument("--interval", type=float, default=4.0, metavar="SECONDS", help="between batches (default 4)")
    parser.add_argument("--metrics-port", type=int, default=0, metavar="PORT", help="for Prometheus; 0 is nowhere")
    options = parser.parse_args(argv)

    def audit(job: Job) -> None:
        settings = load_settings(options.config, os.environ, options.set)
        path = settings.processor.state_table_path
        metrics = LiveAuditMetrics(settings.processor.metrics_max_series) if options.metrics_port else None
        if metrics is not None:
            metrics.serve(settings.processor.metrics_host, options.metrics_port)
        if not await_table(job, path, options.wait):
            return
        job.start_jvm()
        auditor = LiveAuditor(job.session(), path, settings.broker, options.output, options.interval, metrics)
        auditor.serve(job.stop, once=options.once)

    return Job("live-audit", options.verbose).run(audit)


def await_table(job: Job, path: str, wait_s: float) -> bool:
    """Wait until there is a state table; return False when the job is to stop before.

    Raises:
        StateTableError: there is none in time.
    """
    give_up_at = time.monotonic() + wait_s
    is_announced = False
    while not StateTableReader(path).exists():
        if time.monotonic() > give_up_at:
            raise StateTableError(f"There is no state table at {path}.", "Start the processor, which creates it.")
        if not is_announced:
            is_announced = True
            logger.info(Event("waiting_for_state_table", path=path, seconds=wait_s))
        if job.stop.wait(0.5):
            return False
    return True


if __name__ == "__main__":
    end_process(main())
