"""Consumers with a sink are killed and stand still: each result is in the table once, and accepted only if it is there.

The ledger is outside: what was produced, what the table has, and the states of the records in the state table.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.audit.verification.verify import verify
from sharegroup.client.write_decisions import open_writes
from sharegroup.core.record_state import Cause, RecordState
from tests.crash.deployment import Deployment
from tests.crash.transacting_process import Specification, TransactingProcess, is_rejected
from tests.support.site import BROKER, Site

pytestmark = [pytest.mark.slow, pytest.mark.long("many kills of processes")]

_CONSUMERS = 3
_PARTITIONS = 2
_RECORDS_PER_FAULT = 60
_LOCK_MS = 2_000
_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("delivery_count", pa.int32()),
        ("writer", pa.string()),
    ]
)

Position = tuple[int, int]
"""Partition and offset of a record."""


class Run:
    """A group whose consumers write into one table."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.site: Site = deployment.site
        self.sink = str(deployment.folder / "results")
        write_deltalake(self.sink, _SCHEMA.empty_table())
        self.topic = self.site.new_topic(_PARTITIONS)
        self.group_id = self.site.new_group(
            share_record_lock_duration_ms=str(_LOCK_MS),
            share_session_timeout_ms="6000",
            share_delivery_count_limit="10",
            share_exactly_once_enable="true",
        )
        self._numbers = itertools.count()
        self.consumers = [self.started() for _ in range(_CONSUMERS)]

    def started(self) -> TransactingProcess:
        """One more consumer."""
        number = next(self._numbers)
        mode = "explicit" if number % 2 else "implicit"
        folder = str(self.deployment.folder)
        return TransactingProcess(
            Specification(folder, self.group_id, self.topic, f"consumer-{number}", self.sink, mode)
        )

    def written(self) -> Counter[Position]:
        """How often each record is in the table."""
        rows = DeltaTable(self.sink).to_pyarrow_table()
        return Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))

    def produced(self) -> set[Position]:
        """All records of the topic."""
        return {
            (partition, offset)
            for partition, offsets in self.site.log.offsets(self.topic).items()
            for offset in range(offsets.end_offset)
        }

    def ended(self) -> dict[Cause, set[Position]]:
        """The records that were accepted, or ended otherwise, by cause."""
        ended: dict[Cause, set[Position]] = {}
        for row in self.site.rows(self.group_id):
            for change in row.transitions:
                if change.to_state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED):
                    positions = ended.setdefault(change.cause, set())
                    positions.update((row.partition, o) for o in range(change.first_offset, change.last_offset + 1))
        return ended

    def produce(self) -> None:
        """More records in each partition."""
        for partition in range(_PARTITIONS):
            self.site.produce(self.topic, partition, _RECORDS_PER_FAULT)

    def await_end_of_records(self) -> None:
        """Wait until all records are finished."""
        is_drained = partial(self.site.is_drained, self.group_id, self.topic)
        self.deployment.until(is_drained, "all records are finished", pause_s=0.2)

    def await_more_results(self) -> None:
        """Wait until the table has results of later records."""
        before = len(self.written())
        self.deployment.until(lambda: len(self.written()) > before, "more results are in the table", pause_s=0.1)

    def end(self) -> None:
        for consumer in self.consumers:
            consumer.kill()


def test_consumers_are_killed_and_stand_still(deployment: Deployment, crash_count: int, crash_seed: int) -> None:
    choices = random.Random(crash_seed)
    run = Run(deployment)
    try:
        for number in range(2 * crash_count):
            run.produce()
            run.await_more_results()
            run.produce()
            index = choices.randrange(_CONSUMERS)
            if number % 5 == 4:
                deployment.crash("a processor with open writes")
            elif choices.random() < 0.6:
                run.consumers[index].kill()
                run.consumers[index] = run.started()
            else:
                run.consumers[index].pause()
                # Others look its writes up once its locks have ended, and it wakes up late.
                run.await_end_of_records()
                run.consumers[index].resume()
        run.await_end_of_records()
        deployment.until(lambda: not open_writes(run.site.folded(run.group_id)), "no write is open", pause_s=0.2)
    finally:
        run.end()
    written, ended = run.written(), run.ended()
    assert [position for position, count in written.items() if count > 1] == []
    assert set(written) == ended[Cause.ACCEPT]
    assert ended.keys() <= {Cause.ACCEPT, Cause.REJECT}
    rejected = ended.get(Cause.REJECT, set())
    assert all(is_rejected(offset) for _, offset in rejected)
    assert set(written) | rejected == run.produced()
    assert not set(written) & rejected
    assert verify(run.site.rows(), BROKER).findings == []
