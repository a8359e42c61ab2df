"""`sharegroup worker`: a Spark worker as a program, a member of a share group with a handler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sharegroup.programs.flags import EPILOG, check_spark_installed, load_program_settings, program_flags

if TYPE_CHECKING:
    from sharegroup.spark.job import Job


@click.command("worker", epilog=EPILOG)
@click.argument("handler", metavar="MODULE:FUNCTION")
@program_flags(
    once="For a schedule: end when the handler has had all that can be acquired now.",
    wait="With --once: how long to wait for the response of a processor.",
    wait_s=60,
)
@click.option("--group", metavar="ID", help="The share group (key group.id).")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic to read; repeatable (key topics).")
@click.option("--sink", metavar="TABLE", help="Delta table for the handler's rows, exactly once (key sink).")
@click.option("--client-id", metavar="NAME", help="Name of this worker, for logs (key client.id).")
def worker(
    handler: str,
    config: Path | None,
    overrides: tuple[str, ...],
    once: bool,
    wait_s: float,
    verbose: bool,
    group: str | None,
    topics: tuple[str, ...],
    sink: str | None,
    client_id: str | None,
) -> None:
    """Work as a member of a share group, with a handler.

    It runs until SIGTERM or SIGINT: those let the handler finish what it has begun. Started, killed and restarted at
    any time, and in any order with processors: without one, it waits.

    The handler is a function of a module in this folder or an installed package. It takes a DataFrame of records
    (topic, partition, offset, delivery_count, key, value, headers, timestamp) and returns nothing, to accept them all,
    or a DataFrame (topic, partition, offset, acknowledge_type) of those to `release`, `reject` or `renew`, with a
    column redelivery_delay_ms if releases are to be delayed.

    With a sink it returns the rows for that Delta table, or a pair: rows, and such a DataFrame without `renew`.

    \b
    Example:
      sharegroup worker handler:handle
      sharegroup worker handler:handle --group orders --topic orders --once
    """
    check_spark_installed()
    from sharegroup.spark.job import Job, check_handler_name, load_handler
    from sharegroup.spark.worker import process

    def work(job: Job) -> None:
        settings = load_program_settings(config, overrides)
        flags = {"group.id": group, "topics": ",".join(topics) or None, "sink": sink, "client.id": client_id}
        properties = {**settings.worker, **{key: value for key, value in flags.items() if value is not None}}
        settings.worker_config(properties)
        check_handler_name(handler)
        job.start_jvm()
        session = job.session()
        # With a session, since a module may need one as soon as it is imported; a member joins after that.
        function = load_handler(handler)
        channel = settings.channel_properties
        process(session, {**properties, **channel}, function, job.stop, wait_s if once else None)

    click.get_current_context().exit(Job("share-worker", verbose).run(work))
