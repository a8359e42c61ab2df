"""A recorded scenario, replayed into the engine and compared after every step.

How the two worlds are brought together:

* Which records an acquire takes hangs on Kafka's cached batches. The choice comes from the recording; that it is legal
  here (AVAILABLE or never in flight, with the right count) is checked, and `SharePartition.take` applies it.
* Kafka's leader reads the log and so knows of holes, compacted and aborted records. Ours sees offsets only: it gives
  out such records with the others, and the member that finds them missing acknowledges them as gaps. From then on they
  are `missing`, and left out of both sides. When its report arrives is not recorded: here at once for a hole that was
  never in flight, and for what was compacted or aborted with the next request that is no fetch. So Kafka's start offset
  passes them, too, where it does.
* Records that Kafka cached without ever delivering them are AVAILABLE with count 0: the same as never in flight.
* Where a recorded write fails, Kafka takes the change back, renewals excepted. Here a write that fails is repeated with
  its batch. So the change is decided on and compared with what Kafka tried to write, but only renewals are applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord, Transition
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_invariants import check_state
from sharegroup.errors import ApiError, InvalidRequestError, StateTableError
from tests.conformance import rules
from tests.conformance.offsets import Content, shown, shown_contents, touching
from tests.conformance.scenario import FINISHED, KafkaState, Scenario, Step

WRITE_ERROR = {
    "NOT_COORDINATOR": "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_NOT_AVAILABLE": "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS": "COORDINATOR_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH": "NOT_LEADER_OR_FOLLOWER",
    "FENCED_STATE_EPOCH": "NOT_LEADER_OR_FOLLOWER",
    "GROUP_ID_NOT_FOUND": "GROUP_ID_NOT_FOUND",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PARTITION",
}
"""Error of a failed write → error that the caller gets; all others become UNKNOWN_SERVER_ERROR."""

NEVER_DELIVERED = (RecordState.AVAILABLE.name, 0, "")
INITIAL = -1
LOG_WITHOUT_END = 1 << 62
REPORTS_GAPS = ("acknowledge", "release_member", "advance")
"""Operations with which a member's reports arrive of what was compacted or aborted."""


@dataclass(frozen=True)
class Difference:
    """One fact on which Kafka and this engine do not agree.

    Attributes:
        step: index of the step, INITIAL for the state at the beginning.
        fact: `error`, `acquired`, `renewed`, `persisted`, `start_offset`, `in_flight`, `delivery_complete_count`,
            `can_acquire` or `next_fetch_offset`.
        kafka: what was recorded.
        here: what this engine says.
        rule: the rule of docs/conformance.md that predicts exactly this; "" when none does.
    """

    step: int
    field: str
    kafka: str
    here: str
    rule: str

    @property
    def statement(self) -> str:
        """How docs/conformance.md writes it."""
        return f"{self.step}: {self.field} {self.here}"


class Replay:
    """One scenario on its way through the engine."""

    def __init__(self, scenario: Scenario) -> None:
        config = scenario.line["config"]
        self._scenario = scenario
        self._limits = SharePartitionLimits(
            config["lock_ms"], config["delivery_count_limit"], config["max_record_locks"], config["renew_enabled"]
        )
        self._now_ms = 0
        self._missing: set[int] = set()
        self._unreported: dict[str, set[int]] = {}
        self._written: dict[int, Content] = {}
        self._differences: list[Difference] = []
        self._operations: dict[str, Callable[[Step], None]] = {
            "acquire": self._acquire,
            "acknowledge": self._acknowledge,
            "release_member": self._release_member,
            "advance": self._advance,
            "log_start": self._log_start,
            "fail_next_write": lambda step: None,  # the step whose write fails says so itself
        }

    def run(self) -> list[Difference]:
        """All differences, in order."""
        initial = self._scenario.line["initial"]
        expected = self._scenario.line.get("init_result", {}).get("error")
        runs = [Run(first, last, RecordState(state), count) for first, last, state, count in initial["state_batches"]]
        try:
            self._engine = SharePartition(initial["start_offset"], runs)
        except StateTableError:
            self._compare(INITIAL, "error", expected, "ILLEGAL_STATE")
            return self._differences
        self._compare(INITIAL, "error", expected, None)
        self._compare_states(INITIAL, KafkaState.of(self._scenario.line["after_init"]))
        for step in self._scenario.steps():
            self._written = {}
            if step.arguments["op"] in REPORTS_GAPS:
                self._report_what_was_lost()
            start_offset = self._engine.start_offset
            self._operations[step.arguments["op"]](step)
            self._compare_writes(step, start_offset)
            self._compare_states(step.index, step.after)
        return self._differences

    def _advance(self, step: Step) -> None:
        self._now_ms += step.arguments["ms"]
        self._note_writes(self._engine.expire_locks(self._limits, self._now_ms))

    def _log_start(self, step: Step) -> None:
        self._note_writes(self._engine.move_log_start(step.arguments["offset"], self._limits))

    def _release_member(self, step: Step) -> None:
        member_id = step.arguments["member"]
        self._request(step, lambda engine: engine.release_member(member_id, self._limits, self._now_ms))

    # --- acquire ------------------------------------------------------------------------------------------------------

    def _acquire(self, step: Step) -> None:
        if step.threw:
            self._compare(step.index, "error", step.error, None, rules.NO_INTERNAL_FAILURE)
        acquired = {
            offset: count for first, last, count in step.result.get("acquired", []) for offset in range(first, last + 1)
        }
        legal = {offset for offset, count in acquired.items() if self._is_acquirable(offset, count)}
        rule = rules.rule_of_acquired(acquired.keys() - legal, self._engine.start_offset, self._missing)
        self._compare(step.index, "acquired", shown(acquired), shown(legal), rule)
        holes, lost = self._reported_missing(step, legal)
        missing = holes | lost
        chosen = [run for first, last in touching(legal | missing) for run in self._as_runs(first, last)]
        self._engine.take(step.arguments["member"], chosen, self._limits, self._now_ms)
        self._missing |= missing
        self._report_gaps(step.arguments["member"], holes)
        self._unreported.setdefault(step.arguments["member"], set()).update(lost)

    def _report_what_was_lost(self) -> None:
        for member_id, lost in self._unreported.items():
            self._report_gaps(member_id, lost)
        self._unreported.clear()

    def _report_gaps(self, member_id: str, missing: Iterable[int]) -> None:
        left = {offset for offset in missing if offset >= self._engine.start_offset}
        gaps = [AcknowledgementBatch(first, last, (AcknowledgeType.GAP,)) for first, last in touching(left)]
        self._engine.acknowledge(member_id, gaps, self._limits, self._now_ms)

    def _is_acquirable(self, offset: int, count: int) -> bool:
        if offset < self._engine.start_offset:
            return False
        runs = self._engine.runs.overlapping(offset, offset)
        return (runs[0].state, runs[0].delivery_count) == (RecordState.AVAILABLE, count - 1) if runs else count == 1

    def _reported_missing(self, step: Step, acquired: set[int]) -> tuple[set[int], set[int]]:
        """Return the offsets missing in the log: holes never in flight, and compacted or aborted records."""
        engine, kafka, log_batches = self._engine, step.after.records, step.arguments["log_batches"]
        end = max(acquired, default=0)
        jumped = range(step.arguments["fetch_offset"], min(log_batches[0][0], end) if log_batches else 0)
        archived = {offset for offset, content in kafka.items() if content[0] == RecordState.ARCHIVED.name}
        never_cached = {offset for offset in range(engine.next_offset, end) if offset not in kafka}
        missing = {
            offset
            for offset in {*jumped, *archived, *never_cached} - acquired
            if offset >= engine.start_offset
            and all(run.state is RecordState.AVAILABLE for run in engine.runs.overlapping(offset, offset))
        }
        return missing & never_cached, missing - never_cached

    def _as_runs(self, first: int, last: int) -> list[Run]:
        in_flight = self._engine.runs.overlapping(first, last)
        new = max(first, self._engine.next_offset)
        return [*in_flight, *([Run(new, last, RecordState.AVAILABLE, 0)] if new <= last else [])]

    # --- acknowledge --------------------------------------------------------------------------------------------------

    def _acknowledge(self, step: Step) -> None:
        batches, member_id = step.arguments["batches"], step.arguments["member"]
        error = self._request(step, lambda engine: self._ask(engine, member_id, self._sent(batches)))
        if error is not None and step.error is not None:
            self._renew_what_was_refused(step, batches, member_id)

    def _ask(
        self, engine: SharePartition, member_id: str, batches: Iterable[AcknowledgementBatch]
    ) -> list[SharePartitionRecord]:
        return engine.acknowledge(member_id, list(batches), self._limits, self._now_ms)

    def _request(self, step: Step, ask: Callable[[SharePartition], list[SharePartitionRecord]]) -> str | None:
        """Ask a copy, compare the error, and keep the copy unless Kafka's state stayed as it was; returns our error."""
        engine, copy = self._engine, self._copy()
        error = None
        try:
            records = ask(copy)
            self._note_writes(records)
            if self._written and step.write_error:
                error = WRITE_ERROR.get(step.write_error, "UNKNOWN_SERVER_ERROR")
                copy = engine
                for record in records:
                    if isinstance(record, Transition) and record.cause is Cause.RENEW:
                        copy.apply(record)
        except ApiError as refusal:
            error = refusal.name
        rule = rules.rule_of_error(step, error, self._kafka, engine.start_offset, self._missing)
        self._compare(step.index, "error", step.error, error, rule)
        if error is None and step.error is not None and not step.threw:
            self._written = {}
        else:
            self._engine = copy
        if step.error is None and rule == rules.ENDS_IN_A_HOLE and error is not None:
            existing = self._existing(step.arguments["batches"])
            self._note_writes(self._ask(self._engine, step.arguments["member"], existing))
        return error

    def _renew_what_was_refused(self, step: Step, batches: list[dict[str, Any]], member_id: str) -> None:
        """Kafka keeps the renewals in front of the batch that it refuses. Here the member has to ask again."""
        renewed: set[int] = set()
        for length in range(1, len(batches)):
            try:
                records = self._ask(self._copy(), member_id, self._sent(batches[:length]))
            except ApiError:
                break
            for record in records:
                if isinstance(record, Transition) and record.cause is Cause.RENEW:
                    renewed.update(range(record.first_offset, record.last_offset + 1))
        self._compare(step.index, "renewed", shown(renewed), shown(()), rules.ALL_OR_NOTHING)
        renewals = [AcknowledgementBatch(first, last, (AcknowledgeType.RENEW,)) for first, last in touching(renewed)]
        self._ask(self._engine, member_id, renewals)

    def _sent(self, batches: Iterable[dict[str, Any]]) -> Iterable[AcknowledgementBatch]:
        """Recorded batches as a member of ours sends them: without the missing records between their ends."""
        for batch in batches:
            ends_exist = not self._missing & {batch["first"], batch["last"]}
            yield from self._existing([batch]) if ends_exist else [_batch(batch, batch["first"], batch["last"])]

    def _existing(self, batches: Iterable[dict[str, Any]]) -> Iterable[AcknowledgementBatch]:
        for batch in batches:
            if batch["first"] > batch["last"]:
                yield _batch(batch, batch["first"], batch["last"])
            offsets = set(range(batch["first"], batch["last"] + 1)) - self._missing
            yield from (_batch(batch, first, last) for first, last in touching(offsets))

    def _copy(self) -> SharePartition:
        return SharePartition(self._engine.start_offset, self._engine.runs)

    def _note_writes(self, records: Iterable[SharePartitionRecord]) -> None:
        for record in records:
            if isinstance(record, Transition) and record.is_persisted_by_kafka:
                content = (record.to_state.name, record.delivery_count)
                self._written.update(dict.fromkeys(range(record.first_offset, record.last_offset + 1), content))

    # --- compare ------------------------------------------------------------------------------------------------------

    def _compare(self, step: int, field: str, kafka: object, here: object, rule: str = "") -> None:
        if kafka != here:
            self._differences.append(Difference(step, field, _text(kafka), _text(here), rule))

    def _compare_writes(self, step: Step, start_offset: int) -> None:
        kafka = {o: content for o, content in step.persisted.items() if o >= start_offset and o not in self._missing}
        rule = rules.NO_INTERNAL_FAILURE if step.threw else ""
        self._compare(step.index, "persisted", shown_contents(kafka), shown_contents(self._written), rule)

    def _compare_states(self, step: int, kafka: KafkaState) -> None:
        engine, self._kafka = self._engine, kafka
        assert check_state(engine) == []
        unreported = set().union(*self._unreported.values())
        rule = rules.rule_of_start_offset(engine.start_offset, kafka, self._missing, unreported)
        self._compare(step, "start_offset", kafka.start_offset, engine.start_offset, rule)
        here: dict[int, Content] = {
            offset: (run.state.name, run.delivery_count, run.member_id)
            for run in engine.runs
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        in_both = {
            o for o in {*kafka.records, *here} - self._missing if o >= max(kafka.start_offset, engine.start_offset)
        }
        self._compare(
            step, "in_flight", *(shown_contents(_delivered(contents, in_both)) for contents in (kafka.records, here))
        )
        self._compare(
            step,
            "delivery_complete_count",
            kafka.delivery_complete_count - _finished_outside(kafka.records, in_both),
            engine.delivery_complete_count - _finished_outside(here, in_both),
        )
        count = engine.acquirable_count(self._limits, LOG_WITHOUT_END, self._now_ms)
        can_acquire = count + engine.acquirable_suspect_count(LOG_WITHOUT_END, self._now_ms) > 0
        rule = rules.rule_of_can_acquire(can_acquire, kafka, self._missing, self._limits.max_record_locks)
        self._compare(step, "can_acquire", kafka.can_acquire, can_acquire, rule)
        rule = rules.rule_of_next_fetch_offset(kafka)
        self._compare(step, "next_fetch_offset", kafka.next_fetch_offset, engine.next_fetch_offset(self._now_ms), rule)


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def _batch(recorded: dict[str, Any], first: int, last: int) -> AcknowledgementBatch:
    try:
        types = tuple(AcknowledgeType(code) for code in recorded["types"])
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error
    if len(types) > 1:
        types = types[first - recorded["first"] : last - recorded["first"] + 1]
    return AcknowledgementBatch(first, last, types)


def _delivered(contents: dict[int, Content], offsets: set[int]) -> dict[int, Content]:
    return {o: content for o, content in contents.items() if o in offsets and content != NEVER_DELIVERED}


def _finished_outside(contents: dict[int, Content], offsets: set[int]) -> int:
    return sum(content[0] in FINISHED for offset, content in contents.items() if offset not in offsets)
