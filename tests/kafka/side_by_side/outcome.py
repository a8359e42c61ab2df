"""The outcome of a scenario, in terms that mean the same in Kafka and here, and how the two are compared.

What is made alike before it is compared, and why:

- **The start offset is the first record that is not finished.** Kafka stores the start offset with one write delay, and
  knows finished records above it; here the stored start offset has passed them.
- **A start offset is the name of its record, or `end`.** Gaps (deleted and aborted records, markers of transactions)
  have no name: Kafka's leader skips them, here members report them.
- **A record that was never delivered is `available 0`.** Kafka stores nothing of it; here it may have been acquired
  and returned unread.
- **Who got a record is not compared**, where several members poll: it is a matter of timing on both sides. The
  deliveries of a record are in the order of their delivery counts.
- **How long it took until a record was delivered again is not compared.** Kafka releases what a killed member held when
  its connection drops, here when its locks end.
- **State is compared once it holds every delivery.** Kafka writes the end of a lock some time after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sharegroup.core.record_state import RecordState
from tests.kafka.side_by_side.scenario import Scenario, Value

END = "end"
UNTOUCHED = (RecordState.AVAILABLE, 0)


@dataclass
class Delivery:
    """A record that was delivered, and what followed.

    Attributes:
        record: its name.
        delivery_count: in the response to the member.
        acknowledgement: the last word before it was sent; empty for nothing.
        result: `ok` or the name of an error; empty before it is known.
    """

    record: str
    delivery_count: int
    acknowledgement: str = ""
    result: str = ""

    @property
    def is_finished(self) -> bool:
        """True if the record never comes again."""
        return self.acknowledgement in ("accept", "reject") and self.result == "ok"

    def __str__(self) -> str:
        refused = f": {self.result}" if self.result not in ("", "ok") else ""
        return f"{self.delivery_count} {self.acknowledgement or 'nothing'}{refused}"


@dataclass
class PartitionState:
    """The stored state of a share-partition.

    Attributes:
        start_offset: the stored one.
        records: offset → state and delivery count as last written; also of those that the start offset has passed.
    """

    start_offset: int = -1
    records: dict[int, tuple[RecordState, int]] = field(default_factory=dict)

    def of(self, offset: int) -> tuple[RecordState, int]:
        """State and delivery count of a record."""
        return self.records.get(offset, UNTOUCHED)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a scenario.

    Attributes:
        deliveries: record → its deliveries, each as `<count> <acknowledgement>` and the error if it was refused.
        final: record → its state and delivery count at the end, unless it was deleted.
        start: partition → the record at the start offset.
    """

    deliveries: Mapping[str, list[str]]
    final: Mapping[str, str]
    start: Mapping[int, str]

    @property
    def values(self) -> dict[str, Value]:
        """All of it, one by one."""
        entries: dict[str, Value] = {}
        for about, values in (("deliveries", self.deliveries), ("final", self.final), ("start", self.start)):
            entries |= {f"{about} {key}": value for key, value in values.items()}
        return entries


def outcome(
    deliveries: Iterable[Delivery],
    states: Mapping[int, PartitionState],
    offsets: Mapping[int, Mapping[int, str]],
) -> Outcome:
    """The outcome of a scenario that is over.

    Args:
        deliveries: all, in their order.
        states: partition → what is stored.
        offsets: partition → offset → name, of the records that are in the log at the end.
    """
    ordered = sorted(deliveries, key=lambda delivery: delivery.delivery_count)
    left = [name for by_offset in offsets.values() for name in by_offset.values()]
    names = dict.fromkeys([*left, *(delivery.record for delivery in ordered)])
    return Outcome(
        {name: [str(delivery) for delivery in ordered if delivery.record == name] for name in names},
        {
            name: f"{state.name.lower()} {count}"
            for partition, by_offset in offsets.items()
            for offset, name in by_offset.items()
            for state, count in [states[partition].of(offset)]
        },
        {partition: _start(states[partition], by_offset) for partition, by_offset in offsets.items()},
    )


def _start(state: PartitionState, names: Mapping[int, str]) -> str:
    for offset, name in sorted(names.items()):
        if offset >= state.start_offset and not state.of(offset)[0].is_terminal:
            return name
    return END


def disagreements(scenario: Scenario, kafka: Outcome, here: Outcome) -> list[str]:
    """Where the two sides are not as the scenario says; empty when they are.

    Without an expectation they must be equal, but for the differences that the scenario states.
    """
    stated = {difference.name: (difference.kafka, difference.here) for difference in scenario.differs}
    expected = Outcome(**dict(scenario.expect)).values if scenario.expect is not None else None
    statements = []
    for name in sorted({*kafka.values, *here.values, *stated, *(expected or {})}):
        pair = kafka.values.get(name), here.values.get(name)
        if name in stated:
            wanted = stated[name]
        elif expected is not None:
            wanted = expected.get(name), expected.get(name)
        else:
            wanted = pair[0], pair[0]
        if pair != wanted:
            statements.append(f"{name}: Kafka {pair[0]}, here {pair[1]}; expected: Kafka {wanted[0]}, here {wanted[1]}")
    return statements
