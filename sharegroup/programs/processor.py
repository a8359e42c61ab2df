"""`sharegroup processor`: the processor as a program, in a streaming query of Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sharegroup.programs.flags import EPILOG, check_spark_installed, load_program_settings, program_flags

if TYPE_CHECKING:
    from sharegroup.config.loader import Settings
    from sharegroup.spark.job import Job


@click.command("processor", epilog=EPILOG)
@program_flags(
    once="For a schedule: end when every message is applied and no group has had a member for --wait seconds.",
    wait="With --once: how long to wait for members.",
    wait_s=15,
)
@click.option(
    "--accept-older-state",
    is_flag=True,
    help="Start although the state table is an older copy than the request log; prints what is applied again.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Stand by while another processor works, with session, state and logs ready, and take over when it ends; "
    "give this flag to both of two processors.",
)
def processor(
    config: Path | None,
    overrides: tuple[str, ...],
    once: bool,
    wait_s: float,
    verbose: bool,
    accept_older_state: bool,
    standby: bool,
) -> None:
    """Run the share groups of one request log.

    It runs until SIGTERM or SIGINT: those let the commit at hand end. Started, killed and restarted at any time, it
    goes on where the state table ends. A processor that is started while another one runs takes over, and the older
    one ends. With --standby it waits for the end of the other one instead.

    \b
    Example:
      sharegroup processor
      sharegroup processor --config share.yaml --standby
    """
    if standby and (once or accept_older_state):
        raise click.UsageError(
            "--standby runs without an end on the newest state: give it without --once, --accept-older-state"
        )
    check_spark_installed()
    from sharegroup.spark.job import Job

    def work(job: Job) -> None:
        settings = load_program_settings(config, overrides)
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(job.start_jvm)
            # Imported here, which takes a second: the JVM looks for its classes meanwhile.
            from sharegroup.spark.processor_query import ProcessorQuery

            # Before the takeover: a program that can create no session must not end another processor.
            started.result()
        if standby:
            stand_by(job, settings)
            return
        query = ProcessorQuery(job.session, settings, accepts_older_state=accept_older_state)
        query.serve(job.stop, wait_s if once else None)

    click.get_current_context().exit(Job("share-group-processor", verbose).run(work))


def stand_by(job: Job, settings: Settings) -> None:
    """Serve whenever no other processor works; the session is there before."""
    from sharegroup.processor.processor import Processor
    from sharegroup.processor.standby.host import serve_in_turn
    from sharegroup.spark.processor_query import ProcessorQuery

    session = job.session()
    serve_in_turn(
        settings,
        lambda table: Processor(settings, table=table),
        lambda processor: ProcessorQuery(session, settings, processor=processor).serve(job.stop),
        job.stop,
    )
