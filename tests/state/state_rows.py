"""Rows to write: any rows, and batches as a processor writes them."""

from __future__ import annotations

from hypothesis import strategies as st

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, RunEntry, StateBatchEntry, StateRow, TransitionEntry

BATCH_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""

_OFFSETS = st.integers(-1, 2**63 - 1)
_INTS = st.integers(-(2**31), 2**31 - 1)
_TEXTS = st.text(max_size=8)
_STATES = st.sampled_from(RecordState)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(_TEXTS, children, max_size=3),
    max_leaves=5,
)
_STATE_BATCHES = st.builds(
    StateBatchEntry, first_offset=_OFFSETS, last_offset=_OFFSETS, delivery_state=_STATES, delivery_count=_INTS
)
_TRANSITIONS = st.builds(
    TransitionEntry,
    first_offset=_OFFSETS,
    last_offset=_OFFSETS,
    from_state=st.none() | _STATES,
    to_state=_STATES,
    delivery_count=_INTS,
    member_id=_TEXTS,
    deadline_ms=_OFFSETS,
    cause=st.sampled_from(Cause),
    reason=_TEXTS,
    time_ms=_OFFSETS,
    request_offset=_OFFSETS,
)
_RUNS = st.builds(
    RunEntry,
    first_offset=_OFFSETS,
    last_offset=_OFFSETS,
    state=_STATES,
    delivery_count=_INTS,
    member_id=_TEXTS,
    deadline_ms=_OFFSETS,
)
ANY_ROWS = st.lists(
    st.builds(
        StateRow,
        record_type=st.sampled_from(RecordType),
        date=st.just("2026-01-01"),
        commit_id=_OFFSETS,
        leader_epoch=st.integers(-1, 100),
        group_id=_TEXTS,
        topic_id=_TEXTS,
        topic=_TEXTS,
        partition=_INTS,
        request_partition=_INTS,
        request_offset=_OFFSETS,
        time_ms=st.integers(BATCH_MS, BATCH_MS + 86_399_999),
        state_epoch=_INTS,
        snapshot_epoch=_INTS,
        start_offset=_OFFSETS,
        delivery_complete_count=_OFFSETS,
        state_batches=st.lists(_STATE_BATCHES, max_size=3),
        transitions=st.lists(_TRANSITIONS, max_size=3),
        runs=st.lists(_RUNS, max_size=3),
        payload=st.dictionaries(_TEXTS, _JSON, max_size=3),
    ),
    max_size=5,
)
"""Any rows at all, of one day, whether or not they make sense together."""


def marker_row(commit_id: int, end_offset: int, *, time_ms: int = BATCH_MS) -> StateRow:
    """Return the CommitMarker of a commit that applied one request partition up to an end offset."""
    payload = CommitMarkerPayload(end_offsets={0: end_offset})
    return StateRow(
        record_type=RecordType.COMMIT_MARKER,
        commit_id=commit_id,
        time_ms=time_ms,
        payload=payload.model_dump(mode="json"),
    )


def batch_rows(commit_id: int, *, group_id: str = "group-1", time_ms: int = BATCH_MS) -> list[StateRow]:
    """A batch that applied the message `commit_id`: its marker, and the snapshots of three share-partitions."""
    snapshots = [
        StateRow(
            record_type=RecordType.SHARE_SNAPSHOT,
            commit_id=commit_id,
            group_id=group_id,
            topic_id="topic-id",
            topic="orders",
            partition=partition,
            request_partition=0,
            request_offset=commit_id,
            time_ms=time_ms,
            state_epoch=0,
            snapshot_epoch=commit_id,
            start_offset=commit_id,
        )
        for partition in range(3)
    ]
    return [marker_row(commit_id, commit_id + 1, time_ms=time_ms), *snapshots]
