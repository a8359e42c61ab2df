"""Reports of writes are sent until they have a response."""

from __future__ import annotations

import itertools

import pytest

from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.write_reports import WriteReports
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import CoordinatorLoadInProgressError, InvalidRequestError, RequestTimedOutError
from sharegroup.protocol.write_resolution import ResolveWriteRequest, ResolveWriteResponse

TIMEOUT_MS = 1_000
SETTLED = (Acknowledgement("t", 0, 0, 9, AcknowledgeType.ACCEPT, write_version=7),)
OTHER = (Acknowledgement("t", 1, 0, 9, AcknowledgeType.ACCEPT, write_version=7),)
DONE = ResolveWriteResponse(record_count=10)


@pytest.fixture
def reports() -> WriteReports:
    return WriteReports(TIMEOUT_MS, itertools.count(1))


def report(version: int = 7) -> ResolveWriteRequest:
    return ResolveWriteRequest(app_id="app/0", version=version, table_id="table", is_closed=True)


def sent(reports: WriteReports, now_ms: int) -> list[int]:
    return [request.correlation_id for request in reports.next_requests(now_ms)]


def test_a_report_is_sent_again_until_its_response(reports: WriteReports) -> None:
    assert reports.next_deadline_ms is None
    reports.add(report(), [*SETTLED, *OTHER])
    assert sent(reports, 0) == [1]
    assert sent(reports, 1) == []
    assert reports.next_deadline_ms == TIMEOUT_MS
    assert sent(reports, TIMEOUT_MS) == [1]
    results = reports.receive(1, DONE, TIMEOUT_MS + 1)
    assert [(result.acknowledgements, result.error) for result in results] == [(SETTLED, None), (OTHER, None)]
    assert not reports
    assert reports.receive(1, DONE, TIMEOUT_MS + 2) == []


def test_all_are_sent_at_once_and_again_to_another_processor(reports: WriteReports) -> None:
    reports.add(report(7))
    reports.add(report(8))
    assert sent(reports, 0) == [1, 2]
    reports.send_again()
    assert sent(reports, 1) == [1, 2]


def test_after_a_failure_they_wait_for_a_pause(reports: WriteReports) -> None:
    reports.add(report())
    assert sent(reports, 0) == [1]
    reports.send_failed(0)
    assert sent(reports, 1) == []
    assert reports.next_deadline_ms == 100
    assert sent(reports, 100) == [1]


def test_an_error_that_passes_is_tried_again(reports: WriteReports) -> None:
    reports.add(report(), SETTLED)
    assert sent(reports, 0) == [1]
    loading = CoordinatorLoadInProgressError("it loads")
    assert reports.receive(1, ResolveWriteResponse(error_code=loading.code, error_message="it loads"), 5) == []
    assert sent(reports, 6) == []
    assert sent(reports, 105) == [1]


def test_any_other_error_is_the_result(reports: WriteReports) -> None:
    reports.add(report(), SETTLED)
    sent(reports, 0)
    refused = ResolveWriteResponse(error_code=InvalidRequestError.code, error_message="another table")
    (result,) = reports.receive(1, refused, 5)
    assert isinstance(result.error, InvalidRequestError)
    assert not reports


def test_a_close_without_responses_fails_what_they_confirm(reports: WriteReports) -> None:
    reports.add(report(), SETTLED)
    (result,) = reports.give_up()
    assert isinstance(result.error, RequestTimedOutError)
    assert not reports
