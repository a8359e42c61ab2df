"""Follow the state table: check each row as it is committed, and write findings and statistics to Delta tables.

It only reads the state table, and costs the processor nothing but the machine's time. Stopped, it continues where it
was: by commit id, whatever the upkeep did meanwhile. The tables `findings` and `statistics` are in the output folder,
with the checkpoint. The Java option spares a compilation that takes longer than this job's Java code. Example:

    spark-submit --driver-java-options -XX:TieredStopAtLevel=1 \\
        jobs/live_audit.py --config conf/local.yaml --output build/local/audit
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import click

from sharegroup.errors import StateTableError
from sharegroup.event_log import Event
from sharegroup.metrics.live_audit_metrics import LiveAuditMetrics
from sharegroup.programs.ending import run_program
from sharegroup.programs.flags import EPILOG, load_program_settings, program_flags
from sharegroup.spark.job import Job
from sharegroup.spark.live_audit import LiveAuditor
from sharegroup.state.reader import StateTableReader

logger = logging.getLogger(__name__)


@click.command("live_audit.py", help=f"\b\n{__doc__}", epilog=EPILOG)
@program_flags(
    once="For a schedule: end when all commits have been checked.",
    wait="How long to wait for the state table, which the first processor creates.",
    wait_s=60,
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Folder of tables and checkpoint.",
)
@click.option(
    "--interval",
    "interval_s",
    type=float,
    default=4.0,
    metavar="SECONDS",
    show_default=True,
    help="Time between batches.",
)
@click.option("--metrics-port", type=int, default=0, metavar="PORT", help="For Prometheus; 0 is nowhere.")
def live_audit(
    config: Path | None,
    overrides: tuple[str, ...],
    once: bool,
    wait_s: float,
    verbose: bool,
    output: Path,
    interval_s: float,
    metrics_port: int,
) -> None:
    """Run the auditor."""

    def audit(job: Job) -> None:
        settings = load_program_settings(config, overrides)
        path = settings.processor.state_table_path
        metrics = LiveAuditMetrics(settings.processor.metrics_max_series) if metrics_port else None
        if metrics is not None:
            metrics.serve(settings.processor.metrics_host, metrics_port)
        if not await_table(job, path, wait_s):
            return
        job.start_jvm()
        auditor = LiveAuditor(job.session(), path, settings.broker, output, interval_s, metrics)
        auditor.serve(job.stop, once=once)

    click.get_current_context().exit(Job("live-audit", verbose).run(audit))


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
    run_program(live_audit)
