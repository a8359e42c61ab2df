"""Members at work on topics of their own, for as long as a scenario lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from sharegroup.audit.history import group_history
from sharegroup.core.record_state import Cause
from sharegroup.logs.partitioner import partition_for
from sharegroup.state.fold import fold
from tests.crash.auditor import Evidence
from tests.crash.deployment import Deployment
from tests.crash.ledger import read_ledger
from tests.crash.member_process import MemberProcess, Specification, ledgers_folder
from tests.support.site import REQUEST_PARTITIONS, REQUESTS

_PARTITIONS = 2
_RECORDS_AT_ONCE = 5
_PAUSE_S = 0.1
_LOOK_S = 0.3
"""Between two looks at ledgers and at the state table, which cost much."""


@dataclass
class Workload:
    """A group with its members, and a producer.

    Attributes:
        deployment: where all runs.
        group_id: the group.
        topic: what is worked on.
        empty_topic: where fetches stay parked.
        members: name → process.
    """

    deployment: Deployment
    group_id: str
    topic: str
    empty_topic: str
    members: dict[str, MemberProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._producer = threading.Thread(target=self._produce, name="producer")

    def join(self, client_id: str, role: str = "worker", sink: str = "", topic: str = "") -> MemberProcess:
        """One more member."""
        specification = Specification(
            str(self.deployment.folder), self.group_id, client_id, [topic or self.topic], role, sink
        )
        self.members[client_id] = MemberProcess(specification)
        return self.members[client_id]

    def start_producing(self) -> None:
        self._producer.start()

    def stop_producing(self) -> None:
        self._over.set()
        if self._producer.is_alive():
            self._producer.join()

    def deliveries(self, client_id: str) -> int:
        """How much a member has got so far."""
        return len(read_ledger(self.members[client_id].ledger_path).deliveries)

    def await_deliveries(self, client_id: str, more: int = 1) -> None:
        """Wait until a member has got more than now."""
        before = self.deliveries(client_id)
        self.deployment.until(
            lambda: self.deliveries(client_id) >= before + more, f"{more} more deliveries to {client_id}", _LOOK_S
        )

    def await_error(self, client_id: str, text: str) -> None:
        """Wait until a member has met an error that says so."""
        path = self.members[client_id].ledger_path
        self.deployment.until(
            lambda: any(text in error for error in read_ledger(path).errors), f"{client_id} meets: {text}", _LOOK_S
        )

    def record_count(self, cause: Cause) -> int:
        """Records that changed for a cause, as the state table has it."""
        return group_history(self.group_id, self.deployment.site.rows(self.group_id)).record_count(cause)

    def drain(self) -> None:
        """Produce no more, and wait until everything is finished, for as long as something gets finished."""
        self.stop_producing()
        ends = {
            partition: found.end_offset for partition, found in self.deployment.site.log.offsets(self.topic).items()
        }
        starts: dict[int, int] = {}
        while starts != ends:
            moves_on = partial(self._start_offsets_other_than, starts)
            starts = self.deployment.until(moves_on, f"more is done than {starts} of {ends}", _LOOK_S)

    def evidence(self) -> Evidence:
        """What is there to be audited."""
        site = self.deployment.site
        request_partition = partition_for(self.group_id, REQUEST_PARTITIONS)
        found = site.log.offsets(REQUESTS)[request_partition]
        folder = ledgers_folder(self.deployment.folder, self.group_id)
        ledgers = [read_ledger(path) for path in sorted(folder.glob("*.jsonl"))]
        produced = {(self.topic, p): offsets.end_offset for p, offsets in site.log.offsets(self.topic).items()}
        return Evidence(
            self.group_id,
            site.rows(),
            site.log.read(REQUESTS, request_partition, found.start_offset, found.end_offset),
            ledgers,
            produced,
        )

    def check(self) -> None:
        """Drain, and audit all that happened; every member must have lived through it."""
        self.drain()
        for client_id, member in self.members.items():
            assert member.is_running, f"member {client_id} ended:\n{member.output[-4000:]}"
        findings = self.evidence().findings_when_drained()
        assert not findings, "\n".join(findings)

    def close(self) -> None:
        self.stop_producing()
        for member in self.members.values():
            member.kill()

    def _start_offsets_other_than(self, before: dict[int, int]) -> dict[int, int]:
        """Start offset by partition; nothing while they are as before."""
        rows = self.deployment.site.reader.recovery_rows(self.group_id)
        group = fold(rows).groups.get(self.group_id)
        found = group.partitions.values() if group is not None else ()
        starts = {part.partition: part.share_partition.start_offset for part in found if part.topic == self.topic}
        return starts if starts != before else {}

    def _produce(self) -> None:
        partition = 0
        while not self._over.wait(_PAUSE_S):
            self.deployment.site.produce(self.topic, partition, _RECORDS_AT_ONCE)
            partition = (partition + 1) % _PARTITIONS


@contextmanager
def workload(
    deployment: Deployment, workers: Sequence[str] = ("worker-1", "worker-2"), **config: str
) -> Iterator[Workload]:
    """Two workers, one member that holds locks, one whose fetches stay parked, and a producer."""
    site = deployment.site
    group_id = site.new_group(share_delivery_count_limit="10", share_heartbeat_interval_ms="1000", **config)
    load = Workload(deployment, group_id, site.new_topic(_PARTITIONS), site.new_topic())
    try:
        load.start_producing()
        for client_id in workers:
            load.join(client_id)
        load.join("holder", "holder")
        load.join("parked", topic=load.empty_topic)
        for client_id in (*workers, "holder"):
            load.await_deliveries(client_id)
        yield load
    finally:
        load.close()
