"""A site with the Spark session that its workers and sources use, and workers; its processor needs no session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from sharegroup.spark.worker import Handler, SinkHandler, process
from tests.support.eventually import DEADLINE_S
from tests.support.site import Site


class SparkSite(Site):
    """A site, and a session.

    Args:
        spark: the session.
        folder: the site's folder.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(folder)
        self.spark = spark


@contextmanager
def working(
    site: SparkSite,
    group_id: str,
    topic: str,
    handler: Handler | SinkHandler,
    sink: str | None = None,
    /,
    **config: object,
) -> Iterator[None]:
    """A worker for a while; it is stopped at the end, and must end by itself then."""
    stop = threading.Event()
    failures: list[BaseException] = []
    wanted = {"log.path": str(site.log_path), "group.id": group_id, "topics": topic, "client.id": group_id}

    def work() -> None:
        try:
            process(site.spark, {**wanted, **config}, handler, stop, sink=sink)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name=f"work-{group_id}")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert not failures


def drain(
    site: SparkSite,
    group_id: str,
    topic: str,
    handler: Handler | SinkHandler,
    sink: str | None = None,
    /,
    **config: object,
) -> None:
    """Work until every record of the topic is finished."""
    with working(site, group_id, topic, handler, sink, **config):
        site.until(lambda: site.is_drained(group_id, topic), f"group {group_id} is done")
