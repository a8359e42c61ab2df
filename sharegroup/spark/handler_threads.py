"""The threads of a worker's handler: each has the worker's session, and the local properties of its caller.

Spark keeps both for each thread of its JVM. A new thread of Python has none of them, and the handler may change those
of its thread, for all later calls there. So they are set again before each acquisition. A session of Spark Connect has
tags only, which its client keeps for each thread.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from sharegroup.spark import classic, connect
from sharegroup.spark.active_session import activate
from sharegroup.spark.session import WORKER_POOL


class HandlerThreads:
    """Prepares threads that call a handler; create it in the thread that calls `process`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._properties = None if connect.is_connect(spark) else classic.ThreadProperties(spark)

    def begin(self, *job_tags: str) -> None:
        """Give the current thread the session and, in a classic one, the local properties, such as a job group.

        Args:
            job_tags: tags of its Spark jobs, in addition to the caller's.
        """
        if self._properties is not None:
            self._properties.begin(WORKER_POOL, job_tags)
        else:
            # Tags of the acquisition that the thread worked on before are over.
            self._spark.clearTags()
            for job_tag in job_tags:
                self._spark.addTag(job_tag)
        activate(self._spark)

    def cancel(self, job_tag: str) -> None:
        """Cancel the Spark jobs with a tag."""
        if self._properties is not None:
            classic.cancel_jobs(self._spark, job_tag)
        else:
            self._spark.interruptTag(job_tag)
