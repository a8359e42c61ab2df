"""The rules of docs/conformance.md that predict where a replayed scenario differs from Kafka, and how exactly."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sharegroup.core.record_state import AcknowledgeType
from tests.conformance.scenario import FINISHED, UNFINISHED, KafkaState, Step

ACQUIRES_WHAT_EXISTS = "acquires-what-exists"
ALL_OR_NOTHING = "all-or-nothing"
BELOW_START_OFFSET = "below-start-offset"
ENDS_IN_A_HOLE = "ends-in-a-hole"
NO_INTERNAL_FAILURE = "no-internal-failure"
START_OFFSET_PASSES = "start-offset-passes"
TYPES_FIRST = "types-first"
WINDOW_COUNTS_UNFINISHED = "window-counts-unfinished"
WINDOW_IS_EXACT = "window-is-exact"


def start_offset_here(kafka: KafkaState, missing: Collection[int], unreported: Collection[int]) -> int:
    """The SPSO by `start-offset-passes`: past all that is finished in Kafka's state, or reported missing."""

    def is_passed(offset: int) -> bool:
        return offset in missing or (offset in kafka.records and kafka.records[offset][0] in FINISHED)

    offset = kafka.start_offset
    while is_passed(offset) and offset not in unreported:
        offset += 1
    return offset


def rule_of_error(step: Step, error: str | None, kafka: KafkaState, start_offset: int, missing: Collection[int]) -> str:
    """The rule that predicts this error where Kafka gave another one, "" when none does.

    Args:
        step: the acknowledgement or session close.
        error: our error, None for success.
        kafka: Kafka's state before the step.
        start_offset: our SPSO before the step.
        missing: offsets known not to exist.
    """
    batches: list[dict[str, Any]] = step.arguments.get("batches", [])
    ends = [batch[end] for batch in batches for end in ("first", "last")]
    if step.threw:
        return NO_INTERNAL_FAILURE
    if error == "INVALID_REQUEST" and _has_unknown_type(batches):
        return TYPES_FIRST
    if error == "INVALID_RECORD_STATE" and any(offset in missing or kafka.is_hole(offset) for offset in ends):
        return ENDS_IN_A_HOLE
    if any(batch["first"] < start_offset and batch["last"] >= kafka.start_offset for batch in batches):
        return BELOW_START_OFFSET
    if error is None and all(offset < start_offset for offset in step.persisted):
        return BELOW_START_OFFSET
    return ""


def rule_of_acquired(not_here: Iterable[int], start_offset: int, missing: Collection[int]) -> str:
    """The rule that predicts that these offsets, acquired in Kafka, are not acquired here; "" when none does."""
    is_predicted = all(offset < start_offset or offset in missing for offset in not_here)
    return ACQUIRES_WHAT_EXISTS if is_predicted else ""


def rule_of_start_offset(
    start_offset: int, kafka: KafkaState, missing: Collection[int], unreported: Collection[int]
) -> str:
    """The rule that predicts this SPSO where Kafka has another one, "" when none does.

    Args:
        start_offset: our SPSO.
        kafka: Kafka's state.
        missing: offsets known not to exist.
        unreported: those of them that no member has reported yet.
    """
    return START_OFFSET_PASSES if start_offset == start_offset_here(kafka, missing, unreported) else ""


def rule_of_next_fetch_offset(kafka: KafkaState) -> str:
    """The rule that predicts another next fetch offset than Kafka's, "" when none does."""
    return NO_INTERNAL_FAILURE if kafka.next_fetch_offset < kafka.start_offset else ""


def rule_of_can_acquire(can_acquire: bool, kafka: KafkaState, missing: Collection[int], max_record_locks: int) -> str:
    """The rule that predicts whether records can be acquired where Kafka says otherwise, "" when none does.

    Args:
        can_acquire: whether there is something to acquire here.
        kafka: Kafka's state.
        missing: offsets known not to exist.
        max_record_locks: the window.
    """
    unfinished = [
        content for offset, content in kafka.records.items() if content[0] in UNFINISHED and offset not in missing
    ]
    if can_acquire:
        return WINDOW_COUNTS_UNFINISHED if len(unfinished) < max_record_locks else ""
    return WINDOW_IS_EXACT if len(unfinished) > max_record_locks else ""


def _has_unknown_type(batches: Iterable[dict[str, Any]]) -> bool:
    return any(code not in set(AcknowledgeType) for batch in batches for code in batch["types"])
