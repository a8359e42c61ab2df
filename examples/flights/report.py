"""The account of the example: the state table against the input and the sinks, record by record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.table import Column, Table

from examples.flights.flights import TOPIC, fails_at_first, is_cancelled
from examples.flights.sinks import copies
from sharegroup.audit.history.group_history import GroupHistory
from sharegroup.audit.sinks.reconcile import SinkVerification
from sharegroup.audit.verification.findings import Verification
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import Run
from sharegroup.logs.port import Log

LEAST_SHARE_PERCENT = 3


@dataclass
class Account:
    """The comparison of state table, input and sinks, with all disagreements.

    Attributes:
        verification: the invariants, checked over the same rows.
        reconciled: the commits of the sinks against the writes of the state table.
        sink_rows: sink → rows.
        duplicate_count: rows more than one for a record, over all sinks.
        disagreements: everything that does not add up; empty when all is well.
    """

    history: GroupHistory
    verification: Verification
    reconciled: SinkVerification
    sink_rows: dict[str, int] = field(default_factory=dict)
    duplicate_count: int = 0
    disagreements: list[str] = field(default_factory=list)


def account_for(
    log: Log,
    history: GroupHistory,
    verification: Verification,
    reconciled: SinkVerification,
    sinks: Sequence[Path],
    full_members: Iterable[str],
) -> Account:
    """Compare the state table with the input log and the sinks.

    Args:
        sinks: the members' tables.
        full_members: client ids that each must have had their part of the records.
    """
    account = Account(history, verification, reconciled)
    account.disagreements += [str(finding) for finding in (*verification.findings, *reconciled.findings)]
    cancelled = cancelled_flights(log)
    by_number = {partition.partition: partition for partition in history.partitions.values()}
    in_sinks = copies(sinks, {partition: len(flags) for partition, flags in cancelled.items()})
    for partition, flags in cancelled.items():
        partition_history = by_number.get(partition)
        if partition_history is None:
            account.disagreements.append(f"{TOPIC}-{partition}: the state table has nothing of it.")
            continue
        state, delivery_count = _arrays(partition_history.records, len(flags))
        _compare(account, partition, flags, state, delivery_count, in_sinks[partition])
    account.sink_rows = {path.name: sum(int(c.sum()) for c in _one(path, cancelled).values()) for path in sinks}
    _check_drill(account)
    _check_shares(account, full_members)
    return account


def cancelled_flights(log: Log) -> dict[int, np.ndarray]:
    """Partition → whether the flight at each offset was cancelled, from the input itself."""
    return {
        partition: np.array(
            [
                is_cancelled(json.loads(record.value or b"{}"))
                for record in log.read(TOPIC, partition, offsets.start_offset, offsets.end_offset)
            ],
            dtype=bool,
        )
        for partition, offsets in log.offsets(TOPIC).items()
    }


def render(account: Account) -> Group:
    """Return the summary tables."""
    history = account.history
    figures = Table("", Column("RECORDS", justify="right"), title="state table", title_justify="left")
    for title, value in (
        ("accepted", history.count(RecordState.ACKNOWLEDGED)),
        ("rejected", history.record_count(Cause.REJECT)),
        ("released", history.record_count(Cause.RELEASE)),
        ("in doubt, of a dead member", history.record_count(Cause.IN_DOUBT)),
        ("… and not in its sink", history.record_count(Cause.MEMBER_ENDED)),
        ("delivered more than once", history.redelivered_count),
        ("most deliveries of a record", history.highest_delivery_count),
        ("rows in the sinks", sum(account.sink_rows.values())),
        ("rows twice in the sinks", account.duplicate_count),
        ("transitions verified", account.verification.transition_count),
        ("commits of sinks verified", account.reconciled.commit_count),
        ("disagreements", len(account.disagreements)),
    ):
        figures.add_row(title, f"{value:,}")
    members = Table("MEMBER", *(Column(t, justify="right") for t in ("ACQUIRED", "ACCEPTED", "SHARE")))
    acquired, accepted = history.acquired_by_member, history.accepted_by_member
    total = sum(accepted.values())
    for member_id, client_id in sorted(history.client_ids.items(), key=lambda item: item[1]):
        share = f"{100 * accepted[member_id] / max(total, 1):.1f} %"
        members.add_row(client_id, f"{acquired[member_id]:,}", f"{accepted[member_id]:,}", share)
    return Group(figures, members)


def _compare(
    account: Account,
    partition: int,
    cancelled: np.ndarray,
    state: np.ndarray,
    delivery_count: np.ndarray,
    in_sinks: np.ndarray,
) -> None:
    account.duplicate_count += int(np.maximum(in_sinks - 1, 0).sum())
    accepted = state == RecordState.ACKNOWLEDGED
    archived = state == RecordState.ARCHIVED
    released = np.array([fails_at_first(partition, offset) for offset in range(len(state))], dtype=bool)
    for complaint, wrong in (
        ("neither accepted nor rejected", ~(accepted | archived)),
        ("cancelled, but accepted", cancelled & accepted),
        ("flown, but rejected", ~cancelled & archived),
        ("accepted, but in no sink", accepted & (in_sinks == 0)),
        ("in a sink, but not accepted", ~accepted & (in_sinks > 0)),
        ("more than once in the sinks", in_sinks > 1),
        ("meant to be released at first, but delivered once", released & (delivery_count < 2)),
    ):
        if wrong.any():
            account.disagreements.append(
                f"{TOPIC}-{partition}: {int(wrong.sum())} records {complaint}; the first is {int(wrong.argmax())}."
            )


def _arrays(records: Iterable[Run], count: int) -> tuple[np.ndarray, np.ndarray]:
    """State and delivery count of each offset."""
    state, delivery_count = np.full(count, -1), np.zeros(count, dtype=np.int64)
    for run in records:
        part = slice(run.first_offset, run.last_offset + 1)
        state[part], delivery_count[part] = int(run.state), run.delivery_count
    return state, delivery_count


def _one(path: Path, cancelled: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    return copies([path], {partition: len(flags) for partition, flags in cancelled.items()})


def _check_drill(account: Account) -> None:
    if not account.history.record_count(Cause.IN_DOUBT):
        account.disagreements.append("No record of the member that was killed was in doubt.")


def _check_shares(account: Account, full_members: Iterable[str]) -> None:
    accepted = account.history.accepted_by_member
    total = sum(accepted.values())
    member_ids = {client_id: member_id for member_id, client_id in account.history.client_ids.items()}
    for client_id in full_members:
        count = accepted[member_ids[client_id]] if client_id in member_ids else 0
        if 100 * count < LEAST_SHARE_PERCENT * total:
            account.disagreements.append(
                f"Member {client_id} accepted {count} of {total} records, less than {LEAST_SHARE_PERCENT} %."
            )
