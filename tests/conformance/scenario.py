"""Recorded scenarios of Kafka's SharePartition, one JSON object a line, and what they say of each offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sharegroup.core.record_state import RecordState
from tests.conformance.offsets import Content

FINISHED = (RecordState.ACKNOWLEDGED.name, RecordState.ARCHIVED.name)
UNFINISHED = (RecordState.AVAILABLE.name, RecordState.ACQUIRED.name)


@dataclass(frozen=True)
class KafkaState:
    """Kafka's state after a step.

    Attributes:
        start_offset: the SPSO.
        next_fetch_offset: where a fetch would read next.
        delivery_complete_count: finished records at or above the SPSO.
        can_acquire: whether an acquire of a log without end would get records.
        records: offset → (state, count, holder) of everything cached at or above the SPSO; the others are holes.
    """

    start_offset: int
    next_fetch_offset: int
    delivery_complete_count: int
    can_acquire: bool
    records: dict[int, Content]

    @classmethod
    def of(cls, after: dict[str, Any]) -> KafkaState:
        """The state that `after` describes."""
        return cls(
            after["start_offset"],
            after["next_fetch_offset"],
            after["delivery_complete_count"],
            after["can_acquire"],
            {
                offset: (state, count, member)
                for first, last, state, count, member, *_ in after["in_flight"]
                for offset in range(first, last + 1)
            },
        )

    def is_hole(self, offset: int) -> bool:
        """True if an offset from the SPSO on is not cached."""
        return offset >= self.start_offset and offset not in self.records


@dataclass(frozen=True)
class Step:
    """One call, and what came of it.

    Attributes:
        index: position in the scenario.
        arguments: the call as recorded: `op` and its arguments.
        result: the recorded result.
        after: the recorded state.
        persisted: offset → (state, delivery count) last written in this step, failed writes included.
        write_error: the error that a write of this step met, None when all succeeded.
    """

    index: int
    arguments: dict[str, Any]
    result: dict[str, Any]
    after: KafkaState
    persisted: dict[int, Content]
    write_error: str | None

    @classmethod
    def of(cls, index: int, line: dict[str, Any]) -> Step:
        """The step that an entry of `steps` describes."""
        after = line["expect"]["after"]
        written = after.get("persisted_net", {}).get("batches", [])
        return cls(
            index,
            {key: value for key, value in line.items() if key != "expect"},
            line["expect"]["result"],
            KafkaState.of(after),
            {
                offset: (RecordState(state).name, count)
                for first, last, state, count in written
                for offset in range(first, last + 1)
            },
            next((write["outcome"] for write in after["persisted"] if "outcome" in write), None),
        )

    @property
    def error(self) -> str | None:
        """The error's name, None when the call succeeded."""
        return self.result.get("error")

    @property
    def threw(self) -> bool:
        """True if Kafka's method failed internally."""
        return "threw" in self.result


@dataclass(frozen=True)
class Scenario:
    """One line of a file.

    Attributes:
        line: the whole line.
    """

    name: str
    line: dict[str, Any]

    @property
    def has_held_writes(self) -> bool:
        """True if a write stays without a response over several steps; nothing here corresponds to that."""
        return "hold_writes" in self.line["features"]

    def steps(self) -> Iterator[Step]:
        """All steps up to the first held write."""
        for index, line in enumerate(self.line["steps"]):
            if line["op"] == "hold_writes":
                return
            yield Step.of(index, line)
