"""`sharegroup processor`: the processor as a program, in a streaming query of Spark or without Spark."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from sharegroup.program import Program
from sharegroup.programs.flags import EPILOG, check_spark_installed, load_program_settings, program_flags

if TYPE_CHECKING:
    from sharegroup.config.loader import Settings
    from sharegroup.processor.processor import Processor
    from sharegroup.processor.thread_host import ThreadHost
    from sharegroup.spark.job import Job


class NewHost(Protocol):
    """Makes the host of a processor."""

    def __call__(self, *, accepts_older_state: bool = False, processor: Processor | None = None) -> ThreadHost:
        """Return a host of a given processor, or of a new one."""
        ...


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
@click.option(
    "--no-spark",
    is_flag=True,
    help="Host the loop in this process: no JVM, which takes a second, and no progress in Spark.",
)
def processor(
    config: Path | None,
    overrides: tuple[str, ...],
    once: bool,
    wait_s: float,
    verbose: bool,
    accept_older_state: bool,
    standby: bool,
    no_spark: bool,
) -> None:
    """Run the share groups of one request log.

    It runs until SIGTERM or SIGINT: those let the commit at hand end. Started, killed and restarted at any time, it
    goes on where the state table ends. A processor that is started while another one runs takes over, and the older
    one ends. With --standby it waits for the end of the other one instead.

    \b
    Example:
      sharegroup processor
      sharegroup processor --no-spark
      sharegroup processor --config share.yaml --standby
    """
    if standby and (once or accept_older_state):
        raise click.UsageError(
            "--standby runs without an end on the newest state: give it without --once, --accept-older-state"
        )
    job = None if no_spark else new_job(verbose)

    def work(program: Program) -> None:
        settings = load_program_settings(config, overrides)
        # Before the takeover: a program that can create no session must not end another processor.
        new_host = without_spark(settings) if job is None else in_spark(job, settings, standby)
        if standby:
            stand_by(settings, new_host, program.stop)
            return
        host = new_host(accepts_older_state=accept_older_state)
        host.serve(program.stop, wait_s if once else None)

    click.get_current_context().exit((job or Program(verbose)).run(work))


def new_job(is_verbose: bool) -> Job:
    """Return the program that hosts Spark."""
    check_spark_installed()
    from sharegroup.spark.job import Job

    return Job("share-group-processor", is_verbose)


def in_spark(job: Job, settings: Settings, is_standby: bool) -> NewHost:
    """Start the JVM, and return what hosts processors in its session; a standby has the session at once."""
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(job.start_jvm)
        # Imported here, which takes a second: the JVM looks for its classes meanwhile.
        from sharegroup.spark.processor_query import ProcessorQuery

        started.result()
    return partial(ProcessorQuery, job.session() if is_standby else job.session, settings)


def without_spark(settings: Settings) -> NewHost:
    """Return what hosts processors on a thread."""
    from sharegroup.processor.thread_host import ThreadHost

    return partial(ThreadHost, settings)


def stand_by(settings: Settings, new_host: NewHost, stop: threading.Event) -> None:
    """Serve whenever no other processor works."""
    from sharegroup.processor.processor import Processor
    from sharegroup.processor.standby.host import serve_in_turn

    serve_in_turn(
        settings,
        lambda table: Processor(settings, table=table),
        lambda processor: new_host(processor=processor).serve(stop),
        stop,
    )
