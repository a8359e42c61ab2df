"""The admin client against the real actors."""

from __future__ import annotations

import threading

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.errors import InvalidConfigError, RequestTimedOutError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.protocol.api_key import ApiKey
from tests.client.processor_peer import REQUESTS, ProcessorPeer, eventually


def test_configuration_of_a_group_is_changed(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log, client_id="ops")
    admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"}, delete=["share.isolation.level"])
    sent = processor.sent(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    assert [(envelope.group_id, envelope.client_id, envelope.body) for envelope in sent] == [
        ("g", "ops", {"set": {"share.auto.offset.reset": "earliest"}, "delete": ["share.isolation.level"]})
    ]


def test_a_refusal_is_raised_as_what_it_is(log: LocalLog, processor: ProcessorPeer) -> None:
    with pytest.raises(InvalidConfigError, match=r"share\.auto\.offset\.reset"):
        AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "sometimes"})


def test_a_group_is_resumed(log: LocalLog, processor: ProcessorPeer) -> None:
    AdminClient(log).resume_group("g")
    assert [envelope.group_id for envelope in processor.sent(ApiKey.RESUME_SHARE_GROUP)] == ["g"]


def test_silence_ends_in_a_timeout(log: LocalLog, processor: ProcessorPeer) -> None:
    with processor.stalled(), pytest.raises(RequestTimedOutError, match="Group g did not answer RESUME_SHARE_GROUP"):
        AdminClient(log).resume_group("g", timeout=0.05)


def test_a_late_answer_is_not_taken_for_the_next_one(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    outcome: list[Exception | None] = []

    def alter() -> None:
        try:
            admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
            outcome.append(None)
        except InvalidConfigError as error:
            outcome.append(error)

    second = threading.Thread(target=alter)
    with processor.stalled():
        with pytest.raises(RequestTimedOutError):
            admin.alter_group_config("g", {"share.auto.offset.reset": "sometimes"}, timeout=0.05)
        second.start()
        eventually(lambda: sum(o.end_offset for o in log.offsets(REQUESTS).values()) == 2, "both requests")
    second.join()
    assert outcome == [None]


def test_a_log_without_a_processor_is_refused(log: LocalLog) -> None:
    with pytest.raises(UnknownTopicError, match="__share_requests"):
        AdminClient(log).resume_group("g")
