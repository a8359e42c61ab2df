"""Kafka's records of the share-group state: real bytes read and written again, any record there and back."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch
from sharegroup.errors import KafkaRecordError, UnsupportedFormatVersionError
from sharegroup.protocol.kafka_encoding import UnknownTaggedField
from sharegroup.protocol.share_state_records import (
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareUpdate,
    decoded,
    encoded,
)
from tests.support.kafka_dump import key_and_value
from tests.support.kafka_json import key_json, value_json

GOLDEN = Path(__file__).parent / "golden" / "kafka_4.3.1" / "record_shapes.jsonl"
"""Written by a Kafka 4.3.1 broker, and decoded by its own tool; one record of each shape that was seen."""

GOLDEN_LINES = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("line", GOLDEN_LINES)
def test_real_bytes_are_read_as_kafka_reads_them_and_written_as_they_were(line: dict[str, Any]) -> None:
    record = decoded(*key_and_value(line))
    expected = line["decoded"]["value"]
    assert key_json(record.key) == line["decoded"]["key"]["data"]
    assert (record.value and value_json(record.value)) == (expected and expected["data"])
    assert encoded(record) == key_and_value(line)


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


UUIDS = st.binary(min_size=16, max_size=16).map(lambda b: base64.urlsafe_b64encode(b).rstrip(b"=").decode())
KEYS = st.builds(SharePartitionKey, st.text(max_size=300), UUIDS, ints(32))
BATCHES = st.lists(st.builds(StateBatch, ints(64), ints(64), ints(16), st.sampled_from(RecordState)), max_size=200).map(
    tuple
)
SNAPSHOTS = st.builds(
    ShareSnapshot,
    snapshot_epoch=ints(32),
    state_epoch=ints(32),
    leader_epoch=ints(32),
    start_offset=ints(64),
    delivery_complete_count=ints(32),
    create_timestamp=ints(64),
    write_timestamp=ints(64),
    state_batches=BATCHES,
)
UPDATES = st.builds(
    ShareUpdate,
    snapshot_epoch=ints(32),
    leader_epoch=ints(32),
    start_offset=ints(64),
    delivery_complete_count=ints(32),
    state_batches=BATCHES,
)
RECORDS = st.builds(ShareStateRecord, KEYS, st.none() | SNAPSHOTS | UPDATES)


@given(RECORDS)
def test_every_record_comes_back(record: ShareStateRecord) -> None:
    assert decoded(*encoded(record)) == record


KEY = SharePartitionKey("orders", "EREREREREREiIiIiIiIiIg", 3)
UPDATE = ShareUpdate(
    snapshot_epoch=0,
    leader_epoch=1,
    start_offset=2,
    delivery_complete_count=5,
    state_batches=(StateBatch(2, 9, 1, RecordState.ACKNOWLEDGED),),
)
KEY_BYTES, VALUE_BYTES = encoded(ShareStateRecord(KEY, UPDATE))


def test_a_count_that_is_not_known_takes_no_bytes() -> None:
    assert VALUE_BYTES is not None
    _, value = encoded(ShareStateRecord(KEY, replace(UPDATE, delivery_complete_count=-1)))
    assert value == VALUE_BYTES[: -len(bytes.fromhex("01000400000005"))] + b"\x00"


def test_tagged_fields_of_a_later_release_are_kept() -> None:
    assert VALUE_BYTES is not None
    later = VALUE_BYTES[:-7] + bytes.fromhex("020004000000050703aabbcc")
    record = decoded(KEY_BYTES, later)
    assert record == ShareStateRecord(KEY, UPDATE, (UnknownTaggedField(0, 7, bytes.fromhex("aabbcc")),))
    assert encoded(record) == (KEY_BYTES, later)


@given(st.data())
def test_bytes_that_are_cut_short_are_refused(data: st.DataObject) -> None:
    assert VALUE_BYTES is not None
    cut = data.draw(st.integers(0, len(VALUE_BYTES) - 1))
    with pytest.raises(KafkaRecordError, match="more are due"):
        decoded(KEY_BYTES, VALUE_BYTES[:cut])


@given(key=st.binary(max_size=60), value=st.none() | st.binary(max_size=80))
def test_any_bytes_are_a_record_or_refused(key: bytes, value: bytes | None) -> None:
    try:
        record = decoded(b"\x00\x00" + key, value and b"\x00\x00" + value)
    except (KafkaRecordError, UnsupportedFormatVersionError):
        return
    assert decoded(*encoded(record)) == record


@pytest.mark.parametrize(
    ("key", "value", "error", "text"),
    [
        (b"\x00\x02" + KEY_BYTES[2:], VALUE_BYTES, UnsupportedFormatVersionError, "type 2"),
        (KEY_BYTES, b"\x00\x01", UnsupportedFormatVersionError, "version 1"),
        (KEY_BYTES, (VALUE_BYTES or b"") + b"\x00", KafkaRecordError, "left behind"),
        (KEY_BYTES + b"\x00", VALUE_BYTES, KafkaRecordError, "left behind"),
        (KEY_BYTES, None, KafkaRecordError, "An update has no value"),
    ],
)
def test_what_is_not_known_is_refused(key: bytes, value: bytes | None, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        decoded(key, value)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (ShareStateRecord(replace(KEY, partition=2**31), None), "partition: 2147483648 does not fit into 32 bits"),
        (ShareStateRecord(replace(KEY, topic_id="orders"), None), "topic_id: 'orders' is not a UUID"),
        (ShareStateRecord(replace(KEY, group_id="g" * 2**15), None), "group_id: 32768 does not fit into 16 bits"),
        (
            ShareStateRecord(KEY, replace(UPDATE, state_batches=(StateBatch(0, 9, 2**15, RecordState.AVAILABLE),))),
            "state_batches: delivery_count: 32768 does not fit into 16 bits",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_under_its_name(record: ShareStateRecord, text: str) -> None:
    with pytest.raises(KafkaRecordError, match=text):
        encoded(record)
