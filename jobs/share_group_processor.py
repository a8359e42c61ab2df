"""Run the share groups of one request log, until SIGTERM or SIGINT: those let the commit at hand end.

Started, killed and restarted at any time: it goes on where the state table ends. A processor that is started while
another one runs takes over, and the older one ends. With --standby it waits for the end of the other one instead:

    spark-submit jobs/share_group_processor.py --config conf/local.yaml --standby

With --no-spark the same loop runs without a JVM, which takes a second to start:

    python jobs/share_group_processor.py --config conf/local.yaml --no-spark
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sharegroup.config.loader import Settings, load_settings
from sharegroup.program import Program
from sharegroup.spark.job import Job, end_process, job_parser

if TYPE_CHECKING:
    from sharegroup.processor.processor import Processor
    from sharegroup.processor.thread_host import ThreadHost


class NewHost(Protocol):
    """Makes the host of a processor."""

    def __call__(self, *, accepts_older_state: bool = False, processor: Processor | None = None) -> ThreadHost:
        """Return a host of a given processor, or of a new one."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Read the flags and run the processor."""
    parser = job_parser(
        __doc__ or "",
        once="for a schedule: end when every message is applied and no group has had a member for --wait seconds",
        wait="with --once: how long to wait for members",
        wait_s=15,
    )
    parser.add_argument(
        "--accept-older-state",
        action="store_true",
        help="start although the state table is an older copy than the request log; prints what is applied again",
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="stand by while another processor works, with session, state and logs ready, and take over when it ends; "
        "give this flag to both of two processors",
    )
    parser.add_argument(
        "--no-spark",
        action="store_true",
        help="host the loop in this process instead of a streaming query: no JVM, and no progress in Spark",
    )
    options = parser.parse_args(argv)
    if options.standby and (options.once or options.accept_older_state):
        parser.error("--standby runs without an end on the newest state: give it without --once, --accept-older-state")

    def work(program: Program) -> None:
        settings = load_settings(options.config, os.environ, options.set)
        # Before the takeover: a program that can create no session must not end another processor.
        is_standby = options.standby
        new_host = in_spark(program, settings, is_standby) if isinstance(program, Job) else without_spark(settings)
        if options.standby:
            stand_by(settings, new_host, program.stop)
            return
        host = new_host(accepts_older_state=options.accept_older_state)
        host.serve(program.stop, options.wait if options.once else None)

    program = Program(options.verbose) if options.no_spark else Job("share-group-processor", options.verbose)
    return program.run(work)


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


if __name__ == "__main__":
    end_process(main())
