"""The account of the example: it agrees when all is well, and names each way in which something is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from examples.flights.flights import TOPIC, fails_at_first
from examples.flights.report import Account, account_for
from examples.flights.sinks import SINK_SCHEMA, create_sink
from sharegroup.audit.history.group_history import GroupHistory, group_history
from sharegroup.audit.sinks.reconcile import SinkVerification
from sharegroup.audit.verification.findings import Verification
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry

CANCELLED = 2
RETURNED = 3
COUNT = 5
MEMBERS = {"m1": "consumer-1", "m2": "consumer-2"}


@dataclass
class Site:
    """A log of five flights, one of them cancelled and one delivered twice; sinks as two members left them."""

    folder: Path
    entries: list[TransitionEntry]
    sink_offsets: dict[str, list[int]]
    reconciled: SinkVerification = field(default_factory=SinkVerification)

    def account(self) -> Account:
        sinks = []
        for name, offsets in self.sink_offsets.items():
            sinks.append(self.folder / name)
            create_sink(sinks[-1])
            rows = pa.Table.from_pylist([_sink_row(offset) for offset in offsets], schema=SINK_SCHEMA)
            write_deltalake(str(sinks[-1]), rows, mode="append")
        with LocalLog(self.folder / "log.db") as log:
            log.create_topic(TOPIC, 1)
            log.append(TOPIC, 0, [_flight(offset) for offset in range(COUNT)])
            return account_for(log, self._history(), Verification(), self.reconciled, sinks, MEMBERS.values())

    def _history(self) -> GroupHistory:
        records = [
            {"type": "ShareGroupMemberMetadata", "member_id": member_id, "client_id": client_id}
            for member_id, client_id in MEMBERS.items()
        ]
        members = StateRow(record_type=RecordType.GROUP_METADATA, group_id="g", payload={"records": records})
        row = StateRow(
            record_type=RecordType.SHARE_UPDATE,
            group_id="g",
            topic=TOPIC,
            topic_id="t",
            partition=0,
            start_offset=COUNT,
            transitions=self.entries,
        )
        return group_history("g", [members, row])


def _flight(offset: int) -> NewRecord:
    return NewRecord(b"UA", json.dumps({"dep_time": None if offset == CANCELLED else 517.0}).encode())


def _sink_row(offset: int) -> dict[str, object]:
    return {"topic": TOPIC, "partition": 0, "offset": offset, "delivery_count": 1}


def _entry(
    offsets: tuple[int, int], to_state: RecordState, cause: Cause, delivery_count: int = 1, member_id: str = "m1"
) -> TransitionEntry:
    return TransitionEntry(
        first_offset=offsets[0],
        last_offset=offsets[1],
        from_state=None,
        to_state=to_state,
        delivery_count=delivery_count,
        member_id=member_id,
        deadline_ms=0,
        cause=cause,
        time_ms=0,
        request_offset=0,
    )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    assert not any(fails_at_first(0, offset) for offset in range(COUNT))
    entries = [
        _entry((0, 4), RecordState.ACQUIRED, Cause.ACQUIRE),
        _entry((RETURNED, RETURNED), RecordState.RESOLVING, Cause.IN_DOUBT),
        _entry((RETURNED, RETURNED), RecordState.AVAILABLE, Cause.MEMBER_ENDED),
        _entry((0, 1), RecordState.ACKNOWLEDGED, Cause.ACCEPT),
        _entry((CANCELLED, CANCELLED), RecordState.ARCHIVED, Cause.REJECT),
        _entry((RETURNED, RETURNED), RecordState.ACQUIRED, Cause.ACQUIRE, 2, "m2"),
        _entry((RETURNED, RETURNED), RecordState.ACKNOWLEDGED, Cause.ACCEPT, 2, "m2"),
        _entry((4, 4), RecordState.ACKNOWLEDGED, Cause.ACCEPT),
    ]
    return Site(tmp_path, entries, {"one": [0, 1, 4], "two": [RETURNED]})


def test_all_is_well(site: Site) -> None:
    account = site.account()
    assert account.disagreements == []
    assert account.duplicate_count == 0
    assert account.sink_rows == {"one": 3, "two": 1}


def _lose_a_sink_row(site: Site) -> None:
    site.sink_offsets["one"].remove(4)


def _write_twice(site: Site) -> None:
    site.sink_offsets["two"].append(1)


def _write_the_cancelled(site: Site) -> None:
    site.sink_offsets["two"].append(CANCELLED)


def _leave_one_unfinished(site: Site) -> None:
    site.entries.pop()


def _accept_the_cancelled(site: Site) -> None:
    site.entries[4] = _entry((CANCELLED, CANCELLED), RecordState.ACKNOWLEDGED, Cause.ACCEPT)


def _reject_a_flown_one(site: Site) -> None:
    site.entries[-1] = _entry((4, 4), RecordState.ARCHIVED, Cause.REJECT)


def _lose_what_the_dead_member_held(site: Site) -> None:
    del site.entries[1:3]


def _write_without_an_acceptance(site: Site) -> None:
    site.reconciled.add("sink one", "result_is_of_an_accepted_record", "offset 2 is not accepted")


def _starve_a_member(site: Site) -> None:
    site.entries[6] = _entry((RETURNED, RETURNED), RecordState.ACKNOWLEDGED, Cause.ACCEPT, 2, "m1")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (_lose_a_sink_row, "1 records accepted, but in no sink; the first is 4"),
        (_write_twice, "1 records more than once in the sinks; the first is 1"),
        (_write_the_cancelled, "1 records in a sink, but not accepted; the first is 2"),
        (_leave_one_unfinished, "1 records neither accepted nor rejected; the first is 4"),
        (_accept_the_cancelled, "1 records cancelled, but accepted; the first is 2"),
        (_reject_a_flown_one, "1 records flown, but rejected; the first is 4"),
        (_lose_what_the_dead_member_held, "was in doubt"),
        (_write_without_an_acceptance, "result_is_of_an_accepted_record"),
        (_starve_a_member, "Member consumer-2 accepted 0 of 4 records"),
    ],
)
def test_what_does_not_add_up_is_named(site: Site, spoil: Callable[[Site], None], complaint: str) -> None:
    spoil(site)
    assert any(complaint in disagreement for disagreement in site.account().disagreements)
