"""Dead letters on a real broker."""

from __future__ import annotations

from uuid import uuid4

from sharegroup.logs.kafka import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.dead_letter_append import NOT_COPIED_HEADER, append_letters


def test_letters_that_are_too_large_for_their_topic_go_there_without_the_copy(log: KafkaLog) -> None:
    topic = log.create_topic(f"dlq-{uuid4().hex[:8]}", 2, {"max.message.bytes": "2000"}).name
    # The small ones are too large for the topic only together.
    values = [b"x" * 5_000 if number == 11 else b"x" * 300 for number in range(20)]
    letters = [NewRecord(b"key", value, (("offset", b"%d" % n),)) for n, value in enumerate(values)]
    assert append_letters(log, topic, {0: letters, 1: letters[:2]}) == 1
    found = log.read(topic, 0, 0, log.offsets(topic)[0].end_offset)
    assert [dict(record.headers)["offset"] for record in found] == [b"%d" % n for n in range(20)]
    assert [record.value for record in found] == [None if n == 11 else value for n, value in enumerate(values)]
    assert [n for n, record in enumerate(found) if NOT_COPIED_HEADER in dict(record.headers)] == [11]
