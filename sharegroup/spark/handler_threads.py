"""The threads of a worker's handler: each has the worker's session, and the local properties of its caller.

Spark keeps both for each thread of its JVM. A new thread of Python has none of them, and the handler may change those
of its thread, for all later calls there. So they are set again before each acquisition.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from sharegroup.spark.active_session import activate
from sharegroup.spark.session import WORKER_POOL


class HandlerThreads:
    """Prepares threads that call a handler; create it in the thread that calls `process`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._properties = spark.sparkContext._jsc.sc().getLocalProperties().clone()

    def begin(self, *job_tags: str) -> None:
        """Give the current thread the session and the local properties, such as a job group.

        Args:
            job_tags: tags of its Spark jobs, in addition to the caller's.
        """
        context = self._spark.sparkContext
        # A copy, since threads would change the properties of each other.
        context._jsc.sc().setLocalProperties(self._properties.clone())
        context.setLocalProperty("spark.scheduler.pool", WORKER_POOL)
        for job_tag in job_tags:
            context.addJobTag(job_tag)
        activate(self._spark)
