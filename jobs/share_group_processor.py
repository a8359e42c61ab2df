"""Run the share groups of one request log, until SIGTERM or SIGINT: those let the commit at hand end.

Started, killed and restarted at any time: it goes on where the state table ends. A processor that is started while
another one runs takes over, and the older one ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from sharegroup.config.loader import load_settings
from sharegroup.spark.job import Job, end_process, job_parser
from sharegroup.spark.processor_query import ProcessorQuery


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
    options = parser.parse_args(argv)

    def work(job: Job) -> None:
        settings = load_settings(options.config, os.environ, options.set)
        query = ProcessorQuery(job.session(), settings, accepts_older_state=options.accept_older_state)
        query.serve(job.stop, options.wait if options.once else None)

    return Job("share-group-processor", options.verbose).run(work)


if __name__ == "__main__":
    end_process(main())
