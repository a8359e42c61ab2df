"""The common part of the programs for spark-submit, in a session."""

from __future__ import annotations

import logging
import socket

import pytest
from pyspark.sql import SparkSession

from sharegroup.spark.job import log_lost_updates
from tests.support.eventually import eventually


def test_a_jvm_that_ends_while_it_sends_counts_makes_a_line_and_no_traceback(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "sharegroup.spark.job")
    log_lost_updates(spark)
    address = spark.sparkContext._accumulatorServer.server_address
    assert isinstance(address, tuple)
    with socket.create_connection(("localhost", int(address[1]))) as connection:
        # As long as a token, and another one.
        connection.sendall(b"x" * 64)
        eventually(lambda: "event=task_counts_lost" in caplog.text, "the line")
    assert "Exception" not in capfd.readouterr().err
