"""What a program's log says while Kafka does not answer."""

from __future__ import annotations

import logging

import pytest

from sharegroup.logs.kafka_outage import Outage


def test_one_line_a_minute_however_many_operations_wait(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    outage = Outage("Kafka at b:9092")
    outage.lasts("append to partition events-0", 4.9, "refused")
    assert caplog.records == []
    for seconds in (5.2, 5.3, 30.0):
        outage.lasts("describe topic events", seconds, "Connection refused")
    (line,) = [str(record.msg) for record in caplog.records]
    assert line == (
        'event=log_unavailable log="Kafka at b:9092" action="describe topic events" seconds=5 '
        'reason="Connection refused"'
    )
