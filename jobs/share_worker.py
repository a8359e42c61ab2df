"""Work as a member of a share group, until SIGTERM or SIGINT: those let the handler finish what it has begun.

Started, killed and restarted at any time, and in any order with processors: without one, it waits.

The handler is a function that takes a DataFrame of records (topic, partition, offset, delivery_count, key, value,
headers, timestamp) and returns nothing, to accept them all, or a DataFrame (topic, partition, offset,
acknowledge_type) of those to `release`, `reject` or `renew`, with a column redelivery_delay_ms if releases are to be
delayed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from sharegroup.config.loader import load_settings
from sharegroup.spark.job import Job, check_handler_name, end_process, job_parser, load_handler
from sharegroup.spark.worker import process


def main(argv: Sequence[str] | None = None) -> int:
    """Read the flags and run the worker."""
    parser = job_parser(
        __doc__ or "",
        once="for a schedule: end when the handler has had all that can be acquired now",
        wait="with --once: how long to wait for the response of a processor",
        wait_s=60,
    )
    parser.add_argument("--handler", required=True, metavar="PACKAGE.MODULE:FUNCTION", help="what to do with records")
    parser.add_argument("--group", metavar="ID", help="the share group (key group.id)")
    parser.add_argument("--topic", action="append", metavar="NAME", help="a topic to read; repeatable (key topics)")
    parser.add_argument("--client-id", metavar="NAME", help="name of this worker, for logs (key client.id)")
    options = parser.parse_args(argv)

    def work(job: Job) -> None:
        settings = load_settings(options.config, os.environ, options.set)
        topics = ",".join(options.topic) if options.topic else None
        flags = {"group.id": options.group, "topics": topics, "client.id": options.client_id}
        properties = {**settings.worker, **{key: value for key, value in flags.items() if value is not None}}
        settings.worker_config(properties)
        check_handler_name(options.handler)
        job.start_jvm()
        session = job.session()
        # With a session, since a module may need one as soon as it is imported; a member joins after that.
        handler = load_handler(options.handler)
        config = {**properties, **settings.channel_properties}
        process(session, config, handler, job.stop, options.wait if options.once else None)

    return Job("share-worker", options.verbose).run(work)


if __name__ == "__main__":
    end_process(main())
