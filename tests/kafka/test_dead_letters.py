"""Dead-letter records on a real broker."""

from __future__ import annotations

from uuid import uuid4

from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.processor.dead_letter_records import NOT_COPIED_HEADER, append_dead_letter_records


def test_records_that_are_too_large_for_their_topic_are_appended_without_the_copy(log: KafkaLog) -> None:
    topic = log.create_topic(f"dlq-{uuid4().hex[:8]}", 2, {"max.message.bytes": "2000"}).name
    # The small ones are too large for the topic only together.
    values = [b"x" * 5_000 if number == 11 else b"x" * 300 for number in range(20)]
    records = [NewRecord(b"key", value, (("offset", b"%d" % n),)) for n, value in enumerate(values)]
    assert append_dead_letter_records(log, topic, {0: records, 1: records[:2]}) == 1
    appended = log.read(topic, 0, 0, log.offsets(topic)[0].end_offset)
    assert [dict(record.headers)["offset"] for record in appended] == [b"%d" % n for n in range(20)]
    assert [record.value for record in appended] == [None if n == 11 else value for n, value in enumerate(values)]
    assert [n for n, record in enumerate(appended) if NOT_COPIED_HEADER in dict(record.headers)] == [11]
