"""Responses to the probes of standbys, of a real processor: while it works, folds and leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.errors import UnsupportedVersionError
from sharegroup.processor.standby.probe_responses import MAX_STANDBYS, FoldingResponses
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, request
from sharegroup.protocol.standby_messages import StandbyProbeRequest
from tests.support.site import Site

MakeSite = Callable[..., Site]


def probe(site: Site, number: int, standby_id: str = "standby-1", **changed: object) -> None:
    """Append a probe to the request log."""
    envelope: RequestEnvelope = request(
        ApiKey.STANDBY_PROBE,
        "",
        StandbyProbeRequest(),
        member_id=standby_id,
        correlation_id=number,
        reply_partition=1,
    )
    site.append_request(envelope.model_copy(update=changed).encoded())


def responses_to(site: Site, standby_id: str = "standby-1") -> list[ResponseEnvelope]:
    """Return the responses to a standby."""
    return [response for response in site.all_responses() if response.member_id == standby_id]


def states(site: Site, standby_id: str = "standby-1") -> list[tuple[int, str]]:
    """Return the probe and the state of each response."""
    return [
        (response.correlation_id, response.body.get("state", "active")) for response in responses_to(site, standby_id)
    ]


def test_a_probe_gets_its_response_when_it_is_applied_and_commits_nothing(new_site: MakeSite) -> None:
    site = new_site()
    with site.running() as thread:
        probe(site, 3)
        site.until(lambda: responses_to(site), "the response to the probe")
        assert thread.processor.figures.commits == 0
        assert [response.leader_epoch for response in responses_to(site)] == [thread.processor.leader_epoch]
    assert states(site) == [(3, "active"), (3, "leaving")]


def test_a_processor_without_standbys_leaves_without_a_word(new_site: MakeSite) -> None:
    site = new_site()
    with site.running():
        before = len(site.all_responses())
    assert len(site.all_responses()) == before


def test_the_last_standbys_are_notified(new_site: MakeSite) -> None:
    site = new_site()
    standby_ids = [f"standby-{number}" for number in range(MAX_STANDBYS + 2)]
    with site.running():
        for standby_id in standby_ids:
            probe(site, 1, standby_id)
        site.until(lambda: responses_to(site, standby_ids[-1]), "the responses to all probes")
    left = [standby_id for standby_id in standby_ids if (1, "leaving") in states(site, standby_id)]
    assert left == standby_ids[2:]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [({"api_version": 2}, [UnsupportedVersionError.code]), ({"reply_partition": -1}, [])],
    ids=["another version", "no address"],
)
def test_a_probe_that_is_no_probe(new_site: MakeSite, changed: dict[str, object], expected: list[int]) -> None:
    site = new_site()
    with site.running():
        probe(site, 1, "other", **changed)
        probe(site, 2)
        site.until(lambda: responses_to(site), "the response to the later probe")
    assert [response.body["error_code"] for response in responses_to(site, "other")] == expected


@pytest.mark.slow
def test_a_processor_that_folds_responds_to_probes(new_site: MakeSite) -> None:
    site = new_site()
    with site.running():
        pass
    folding = FoldingResponses(site.log, site.settings.processor)
    folding.begin(9)
    numbers = iter(range(1_000))

    def has_response() -> bool:
        probe(site, next(numbers))
        return bool(responses_to(site))

    site.until(has_response, "the response to a probe")
    folding.end()
    first = responses_to(site)[0]
    assert first.leader_epoch == 9
    assert first.body == {"state": "folding"}
