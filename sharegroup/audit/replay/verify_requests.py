"""`verify` with the request log: the same requests, cut in the same way, give the same rows and responses.

Compared are all columns that the actors decide, commit by commit; the responses and internal messages, as far as the
markers have them; and what a marker says of times and group epochs. The broker's configuration must be the one that was
in force: it is not in the table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharegroup.audit.replay.request_replay import Gap, ReplayedCommit, RequestReplay
from sharegroup.audit.verification.findings import Finding, row_finding
from sharegroup.core.invariants import Violation
from sharegroup.protocol.rows import StateRow

_DECIDED_COLUMNS = tuple(
    name for name in StateRow.model_fields if name not in ("date", "commit_id", "leader_epoch", "record_type")
)
"""Columns that the actors decide; the state table adds the others."""

_MOST_OF_GROUP = 10
"""Findings of a group in one leader epoch; what follows from the first ones is not repeated."""
_SHOWN = 200


@dataclass
class RequestVerification:
    """The result of a replay of the request log.

    Attributes:
        message_count: messages of the request log in them.
        row_count: rows compared.
        response_count: responses compared.
        finding_count: differences.
        findings: the first ones of each group and leader epoch, in the order of the commits.
        gaps: commits that could not be replayed; they are no findings.
    """

    commit_count: int = 0
    message_count: int = 0
    row_count: int = 0
    response_count: int = 0
    finding_count: int = 0
    findings: list[Finding] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def verify_requests(replay: RequestReplay) -> RequestVerification:
    """Compare each commit with the replay of its messages.

    Args:
        replay: the replay, without changes.
    """
    result = RequestVerification()
    counts: Counter[tuple[int, str]] = Counter()
    for commit in replay.commits():
        result.commit_count += 1
        result.message_count += commit.message_count
        for group_id, finding in _differences(commit, result):
            key = commit.recorded.marker.leader_epoch, group_id
            counts[key] += 1
            result.finding_count += 1
            if counts[key] <= _MOST_OF_GROUP:
                result.findings.append(finding)
    result.gaps = list(replay.gaps)
    return result


def _differences(commit: ReplayedCommit, result: RequestVerification) -> Iterator[tuple[str, Finding]]:
    """Yield group and finding of each difference."""
    recorded = [row for row in commit.recorded.rows if row.group_id not in commit.left_out]
    outputs = [output for output in commit.outputs if output.group_id not in commit.left_out]
    result.row_count += len(recorded)
    yield from _row_differences(recorded, [row for output in outputs for row in output.rows])
    responses = [
        (response.partition, response.member_id, response.value)
        for response in commit.recorded.payload.responses
        if not commit.left_out or _group_of(response.value) not in commit.left_out
    ]
    result.response_count += len(responses)
    replayed = [(r.partition, r.member_id, r.value) for output in outputs for r in output.responses]
    yield from _outbox_differences(commit, "response", responses, replayed, lambda response: _group_of(response[2]))
    messages = [m for m in commit.recorded.payload.messages if _group_of(m) not in commit.left_out]
    sent = [value for output in outputs for _, value in output.messages]
    yield from _outbox_differences(commit, "message", messages, sent, _group_of)
    yield from _marker_differences(commit)


def _row_differences(recorded: Sequence[StateRow], replayed: Sequence[StateRow]) -> Iterator[tuple[str, Finding]]:
    written, made = _by_key(recorded), _by_key(replayed)
    for key in sorted(written.keys() | made.keys(), key=repr):
        here, there = written.get(key), made.get(key)
        row = here or there
        assert row is not None
        if here is None or there is None:
            what = "is only in the replay" if here is None else "is not in the replay"
            detail = f"the {row.record_type.value} row {what}"
            yield row.group_id, row_finding(row, Violation("replay_gives_the_same_rows", detail))
            continue
        for column in _DECIDED_COLUMNS:
            values = getattr(here, column), getattr(there, column)
            if column == "payload":
                values = values[0], json.loads(json.dumps(values[1]))
            if values[0] != values[1]:
                detail = f"{column} of the {row.record_type.value} row is {_short(values[0])}, the replay has "
                violation = Violation("replay_gives_the_same_rows", detail + _short(values[1]))
                yield row.group_id, row_finding(row, violation)


def _by_key(rows: Sequence[StateRow]) -> dict[tuple[Any, ...], StateRow]:
    """Return the rows by what names a row in its commit; a repeat has the next number."""
    seen: Counter[tuple[Any, ...]] = Counter()
    by_key: dict[tuple[Any, ...], StateRow] = {}
    for row in rows:
        key = row.group_id, row.topic_id, row.partition, row.request_offset, row.record_type.value, row.state_epoch
        by_key[(*key, seen[key])] = row
        seen[key] += 1
    return by_key


def _outbox_differences(
    commit: ReplayedCommit, noun: str, recorded: Sequence[Any], replayed: Sequence[Any], group_of: Callable[[Any], str]
) -> Iterator[tuple[str, Finding]]:
    """Compare the outbox with the end of what was made: cuts without rows had published theirs before the commit."""
    made = replayed[len(replayed) - len(recorded) :] if len(replayed) >= len(recorded) else replayed
    location = f"commit {commit.recorded.marker.commit_id} of leader epoch {commit.recorded.marker.leader_epoch}"
    for index, (here, there) in enumerate(zip(recorded, made, strict=False)):
        if here != there:
            detail = f"{noun} {index} is {_short(here)}, the replay has {_short(there)}"
            yield group_of(here), Finding(location, Violation("replay_gives_the_same_responses", detail))
    if len(made) < len(recorded):
        detail = f"{len(recorded)} {noun}s, the replay has {len(made)}"
        yield group_of(recorded[-1]), Finding(location, Violation("replay_gives_the_same_responses", detail))


def _marker_differences(commit: ReplayedCommit) -> Iterator[tuple[str, Finding]]:
    payload = commit.recorded.payload
    location = f"commit {commit.recorded.marker.commit_id} of leader epoch {commit.recorded.marker.leader_epoch}"
    pairs: list[tuple[str, object, object]] = [
        ("message_times_ms", payload.message_times_ms, dict(commit.message_times_ms)),
    ]
    if not commit.left_out:
        pairs.append(("group_epoch_floor", payload.group_epoch_floor, commit.group_epoch_floor))
    for name, here, there in pairs:
        if here != there:
            detail = f"{name} is {here}, the replay has {there}"
            yield "", Finding(location, Violation("replay_gives_the_same_marker", detail))


def _group_of(value: str) -> str:
    """Return the group of an envelope in JSON."""
    try:
        return str(json.loads(value).get("group_id", ""))
    except (ValueError, AttributeError):
        return ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
