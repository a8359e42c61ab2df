"""The common part of the programs for spark-submit, in a session."""

from __future__ import annotations

import logging
import socket

import pytest
from pyspark.sql import SparkSession

from sharegroup.spark.job import log_lost_updates


def test_a_jvm_that_ends_while_it_sends_counts_makes_a_line_and_no_traceback(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "sharegroup.spark.job")
    log_lost_updates(spark)
    server = spark.sparkContext._accumulatorServer
    ours, jvm = socket.socketpair()
    with ours, jvm:
        # As its loop does when a connection fails; the JVM of the session holds the only one that it serves.
        try:
            raise EOFError("the JVM ended")
        except EOFError:
            server.handle_error(ours, ("127.0.0.1", 1))
    assert "event=task_counts_lost" in caplog.text
    assert "the JVM ended" in caplog.text
    assert "Exception" not in capfd.readouterr().err
