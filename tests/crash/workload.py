"""Members at work on topics of their own while faults happen; audited after each."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from sharegroup.audit.history.group_history import group_history
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import Cause
from sharegroup.errors import LogLockedError
from sharegroup.logs.partitioner import partition_for
from sharegroup.state.fold import fold
from tests.crash.auditor import Evidence
from tests.crash.deployment import Deployment
from tests.crash.ledger import read_ledger
from tests.crash.member_process import MemberProcess, Specification, ledgers_folder
from tests.support.site import BROKER, REQUEST_PARTITIONS, REQUESTS

_PARTITIONS = 2
_RECORDS_AT_ONCE = 5
_PAUSE_S = 0.1
_POLL_S = 0.1
"""Between two reads of ledgers and of the state table, which cost much."""
_LOCK_ENDS = (Cause.LOCK_TIMEOUT, Cause.MEMBER_SILENT, Cause.MEMBER_ENDED)


@dataclass
class Workload:
    """A group with its members, and a producer.

    Attributes:
        deployment: where all runs.
        topic: the topic with records.
        empty_topic: where fetches stay parked.
        members: name → process.
        broker: defaults and bounds that are in force.
    """

    deployment: Deployment
    group_id: str
    topic: str
    empty_topic: str
    members: dict[str, MemberProcess] = field(default_factory=dict)
    broker: BrokerConfig = BROKER

    def __post_init__(self) -> None:
        self._may_produce = threading.Event()
        self._is_paused = threading.Event()
        self._is_over = threading.Event()
        self._producer = threading.Thread(target=self._produce, name="producer", daemon=True)
        self._producer.start()

    def join(self, client_id: str, role: str = "worker", sink: str = "", topic: str = "") -> MemberProcess:
        """Start one more member; a client id that was used before gets a number."""
        folder = str(self.deployment.folder)
        specification = Specification(folder, self.group_id, client_id, [topic or self.topic], role, sink)
        number = 1
        while specification.ledger_path.with_suffix(".json").exists():
            number += 1
            name = f"{client_id}-{number}"
            specification = Specification(folder, self.group_id, name, [topic or self.topic], role, sink)
        self.members[client_id] = MemberProcess(specification)
        return self.members[client_id]

    def replace(self, client_id: str, role: str) -> None:
        """Start a member instead of one that is gone, and wait until it has records."""
        self.join(client_id, role)
        self.await_deliveries(client_id)

    def start_producing(self) -> None:
        """Append records until `stop_producing`."""
        self._is_paused.clear()
        self._may_produce.set()

    def stop_producing(self) -> None:
        """Append no more records; returns when the last append is over."""
        if self._may_produce.is_set():
            self._may_produce.clear()
            self._is_paused.wait()

    def deliveries(self, client_id: str) -> int:
        """Return how many records a member has had so far."""
        member = self.members[client_id]
        assert member.is_running, f"member {client_id} ended:\n{member.output[-4000:]}"
        return len(read_ledger(member.ledger_path).deliveries)

    def await_deliveries(self, client_id: str, more: int = 1) -> None:
        """Wait until a member has had more records than now."""
        before = self.deliveries(client_id)
        self.deployment.until(
            lambda: self.deliveries(client_id) >= before + more, f"{more} more deliveries to {client_id}", _POLL_S
        )

    def await_error(self, client_id: str, text: str) -> None:
        """Wait until a member has met an error with this text."""
        path = self.members[client_id].ledger_path
        self.deployment.until(
            lambda: any(text in error for error in read_ledger(path).errors), f"{client_id} meets: {text}", _POLL_S
        )

    def record_count(self, *causes: Cause) -> int:
        """Return how many records changed for these causes, as the state table has it."""
        history = group_history(self.group_id, self.deployment.site.rows(self.group_id))
        return sum(history.record_count(cause) for cause in causes)

    @contextmanager
    def awaiting_lock_end(self) -> Iterator[None]:
        """Wait after the block until locks of the group have ended, since it began, that nobody gave back."""
        before = self.record_count(*_LOCK_ENDS)
        yield
        self.deployment.until(lambda: self.record_count(*_LOCK_ENDS) > before, "locks ended", _POLL_S)

    def drain(self) -> None:
        """Produce no more, and wait until everything is finished, for as long as something gets finished."""
        self.stop_producing()
        offsets = self.deployment.site.log.offsets(self.topic)
        ends = {partition: bounds.end_offset for partition, bounds in offsets.items()}
        starts: dict[int, int] = {}
        while starts != ends:
            changed = partial(self._start_offsets_other_than, starts)
            starts = self.deployment.until(changed, f"more is finished than {starts} of {ends}", _POLL_S)

    def evidence(self) -> Evidence:
        """Return all that an audit reads."""
        site = self.deployment.site
        request_partition = partition_for(self.group_id, REQUEST_PARTITIONS)
        requests = site.log.offsets(REQUESTS)[request_partition]
        folder = ledgers_folder(self.deployment.folder, self.group_id)
        return Evidence(
            self.group_id,
            site.rows(),
            site.log.read(REQUESTS, request_partition, requests.start_offset, requests.end_offset),
            site.responses(self.group_id),
            [read_ledger(path) for path in sorted(folder.glob("*.jsonl"))],
            {(self.topic, p): offsets.end_offset for p, offsets in site.log.offsets(self.topic).items()},
            self.broker,
        )

    def check(self) -> None:
        """Drain, audit all that happened, and go on producing; no member may have ended."""
        self.drain()
        for client_id, member in self.members.items():
            assert member.is_running, f"member {client_id} ended:\n{member.output[-4000:]}"
        findings = self.evidence().findings_when_drained()
        assert not findings, "\n".join(findings)
        self.start_producing()

    def close(self) -> None:
        """Kill all members."""
        self._is_over.set()
        self._may_produce.set()
        self._producer.join()
        for member in self.members.values():
            member.kill()

    def _start_offsets_other_than(self, before: dict[int, int]) -> dict[int, int]:
        """Return the start offset by partition; nothing while they are as before."""
        rows = self.deployment.site.reader.recovery_rows(self.group_id)
        group = fold(rows).groups.get(self.group_id)
        partitions = group.partitions.values() if group is not None else ()
        starts = {part.partition: part.share_partition.start_offset for part in partitions if part.topic == self.topic}
        return starts if starts != before else {}

    def _produce(self) -> None:
        partition = 0
        try:
            while not self._is_over.wait(_PAUSE_S):
                if not self._may_produce.is_set():
                    self._is_paused.set()
                    self._may_produce.wait()
                    continue
                with suppress(LogLockedError):
                    self.deployment.site.produce(self.topic, partition, _RECORDS_AT_ONCE)
                partition = (partition + 1) % _PARTITIONS
        finally:
            self._is_paused.set()


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
