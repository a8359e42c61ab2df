"""Run the share groups of one request log, until SIGTERM or SIGINT: those let the commit at hand end.

Started, killed and restarted at any time: it goes on where the state table ends. A processor that is started while
another one runs takes over, and the older one ends. With --standby it waits for the end of the other one instead:

    spark-submit jobs/share_group_processor.py --config conf/local.yaml --standby
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sharegroup.config.loader import Settings, load_settings
from sharegroup.spark.job import Job, end_process, job_parser


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
    options = parser.parse_args(argv)
    if options.standby and (options.once or options.accept_older_state):
        parser.error("--standby runs without an end on the newest state: give it without --once, --accept-older-state")

    def work(job: Job) -> None:
        settings = load_settings(options.config, os.environ, options.set)
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(job.start_jvm)
            # Imported here, which takes a second: the JVM looks for its classes meanwhile.
            from sharegroup.spark.processor_query import ProcessorQuery

            # Before the takeover: a program that can create no session must not end another processor.
            started.result()
        if options.standby:
            stand_by(job, settings)
            return
        query = ProcessorQuery(job.session, settings, accepts_older_state=options.accept_older_state)
        query.serve(job.stop, options.wait if options.once else None)

    return Job("share-group-processor", options.verbose).run(work)


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


if __name__ == "__main__":
    end_process(main())
