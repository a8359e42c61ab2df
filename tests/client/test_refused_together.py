"""Acknowledgements that a share-partition refused together, although the member still holds some of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import ApiError, InvalidRecordStateError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from tests.client.processor_peer import ProcessorPeer

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
TIMEOUT_MS = 60_000
FETCH = FetchSettings(max_records=5, batch_size=5, acquire_mode=AcquireMode.RECORD_LIMIT)
SETTINGS = MemberSettings(group_id="g", fetch=FETCH, sends_refused_apart=True)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    """A log of three acquisitions."""
    with LocalLog(tmp_path / "events.log") as log:
        log.create_topic("orders", 1, {})
        log.append("orders", 0, [NewRecord(None, b"value")] * 15)
        yield log


@pytest.fixture
def processor(log: LocalLog) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(log) as processor:
        AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
        yield processor


Start = Callable[[MemberSettings], GroupMember]


@pytest.fixture
def start(log: LocalLog, processor: ProcessorPeer) -> Iterator[Start]:
    members: list[GroupMember] = []

    def started(settings: MemberSettings) -> GroupMember:
        members.append(GroupMember(log, settings))
        members[-1].subscribe(["orders"])
        return members[-1]

    yield started
    for member in members:
        member.close(TIMEOUT_MS)


def three_acquisitions(member: GroupMember) -> list[Acquisition]:
    """The records 0 to 4, 5 to 9 and 10 to 14."""
    acquisitions = [member.next_acquisition(TIMEOUT_MS) for _ in range(3)]
    assert all(acquisitions)
    return [acquisition for acquisition in acquisitions if acquisition is not None]


def of_all(acquisition: Acquisition, acknowledge_type: AcknowledgeType) -> list[Acknowledgement]:
    return [held.acknowledgement(acknowledge_type) for held in acquisition.ranges]


def responses(member: GroupMember, *acknowledgements: list[Acknowledgement]) -> list[Acknowledged]:
    """Send acknowledgements with one request, and return all results."""
    member.acknowledge(ack for acks in acknowledgements for ack in acks)
    results = member.flush(TIMEOUT_MS)
    assert not member.unconfirmed_partitions()
    return results


def words(results: list[Acknowledged]) -> list[tuple[int, int, str, type[ApiError] | None]]:
    """(first offset, last offset, type, error) of each acknowledgement, by offset."""
    return sorted(
        (ack.first_offset, ack.last_offset, ack.acknowledge_type.name, type(result.error) if result.error else None)
        for result in results
        for ack in result.acknowledgements
    )


def test_only_the_acknowledgements_of_lost_records_stay_refused(start: Start) -> None:
    member = start(SETTINGS)
    first, second, third = three_acquisitions(member)
    assert words(responses(member, of_all(second, ACCEPT))) == [(5, 9, "ACCEPT", None)]
    assert words(responses(member, of_all(first, RENEW), of_all(second, RENEW), of_all(third, ACCEPT))) == [
        (0, 4, "RENEW", None),
        (5, 9, "RENEW", InvalidRecordStateError),
        (10, 14, "ACCEPT", None),
    ]
    assert words(responses(member, of_all(first, ACCEPT))) == [(0, 4, "ACCEPT", None)]


def test_an_acquisition_that_is_refused_alone_is_not_sent_again(start: Start, processor: ProcessorPeer) -> None:
    member = start(SETTINGS)
    _, second, _ = three_acquisitions(member)
    responses(member, of_all(second, ACCEPT))

    assert words(responses(member, of_all(second, RENEW))) == [(5, 9, "RENEW", InvalidRecordStateError)]
    requests: list[ShareFetchRequest | ShareAcknowledgeRequest] = [
        *(parsed(ShareFetchRequest, sent.body) for sent in processor.sent(ApiKey.SHARE_FETCH)),
        *(parsed(ShareAcknowledgeRequest, sent.body) for sent in processor.sent(ApiKey.SHARE_ACKNOWLEDGE)),
    ]
    renewals = [
        (acknowledgement.first_offset, acknowledgement.last_offset)
        for request in requests
        for topic in request.topics
        for partition in topic.partitions
        for acknowledgement in partition.acknowledgement_batches
        if RENEW in acknowledgement.acknowledge_types
    ]
    assert renewals == [(5, 9)]


def test_without_the_setting_all_acknowledgements_of_the_partition_are_refused(start: Start) -> None:
    member = start(replace(SETTINGS, sends_refused_apart=False))
    first, second, third = three_acquisitions(member)
    responses(member, of_all(second, ACCEPT))
    (result,) = responses(member, of_all(first, RENEW), of_all(second, RENEW), of_all(third, RENEW))
    assert isinstance(result.error, InvalidRecordStateError)


def test_a_later_acknowledgement_replaces_one_that_is_sent_apart(start: Start) -> None:
    member = start(SETTINGS)
    first, second, _ = three_acquisitions(member)
    responses(member, of_all(second, ACCEPT))
    member.acknowledge([*of_all(first, RENEW), *of_all(second, RENEW)])
    results = responses(member, of_all(first, ACCEPT))
    assert (0, 4, "ACCEPT", None) in words(results)


# Not ACCEPT: the start offset would pass the lost records, and what is below it is passed over without an error.
@pytest.mark.parametrize(("type_of_others", "keeps_locks"), [(RENEW, True), (RELEASE, False)])
def test_the_close_sends_all_that_is_sent_apart(
    type_of_others: AcknowledgeType, keeps_locks: bool, start: Start
) -> None:
    member = start(SETTINGS)
    first, second, third = three_acquisitions(member)
    responses(member, of_all(second, ACCEPT))
    last = [ack for acquisition in (first, second, third) for ack in of_all(acquisition, type_of_others)]
    assert words(member.close(TIMEOUT_MS, last, keeps_locks=keeps_locks)) == [
        (0, 4, type_of_others.name, None),
        (5, 9, type_of_others.name, InvalidRecordStateError),
        (10, 14, type_of_others.name, None),
    ]
