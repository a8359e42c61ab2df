"""The effect of a resolution on the records of its write: those that are undecided, and no others."""

from __future__ import annotations

from sharegroup.core.acknowledgement import not_written, transition_of
from sharegroup.core.cause_rules import ACKNOWLEDGE_CAUSE
from sharegroup.core.offset_ranges import clip, gaps
from sharegroup.core.open_writes import RecordOutcome, Resolution, WriteOpened
from sharegroup.core.records import SharePartitionLimits, Transition
from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap


def resolved_transitions(
    runs: RunMap, opened: WriteOpened, resolution: Resolution, limits: SharePartitionLimits, now_ms: int
) -> list[Transition]:
    """Return the transitions of the records of a write for what its sink says of them; change nothing."""
    planned: list[Transition] = []
    for run in runs.overlapping(opened.first_offset, opened.last_offset):
        if run.write_version != opened.write.version:
            continue
        named = resolution.outcomes.overlapping(run.first_offset, run.last_offset)
        pieces: list[tuple[int, int, RecordOutcome | None]] = [*named]
        if resolution.is_closed:
            others = gaps(run.first_offset, run.last_offset, (piece[:2] for piece in named))
            pieces += ((first, last, resolution.others) for first, last in others)
        for first, last, outcome in sorted(pieces, key=lambda piece: piece[0]):
            planned.append(_resolved(clip(run, first, last), outcome, limits, now_ms))
    return planned


def _resolved(run: Run, outcome: RecordOutcome | None, limits: SharePartitionLimits, now_ms: int) -> Transition:
    if outcome is None:
        return not_written(run, limits, now_ms)
    return transition_of(run, ACKNOWLEDGE_CAUSE[outcome.acknowledge_type], limits, now_ms, outcome.redelivery_delay_ms)
