"""Three brokers under load: their leaders are killed, restarted and moved, and nothing is lost or delivered again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharegroup.audit.replay.request_replay import RequestReplay
from sharegroup.audit.replay.verify_requests import verify_requests
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.messages import decoded_response
from tests.crash.auditor import Evidence
from tests.crash.ledger import read_ledger
from tests.crash.member_process import MemberProcess, Specification, ledgers_folder
from tests.kafka.site import KafkaSite
from tests.support.eventually import eventually
from tests.support.kafka_cluster import NODES, KafkaCluster
from tests.support.site import BROKER

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.long("a cluster of three brokers")]

WORKERS = ("worker-1", "worker-2")
PARTITIONS = 3
RECORDS_AT_ONCE = 5
PAUSE_S = 0.2
POLL_S = 0.3


class Load:
    """A processor, two members in processes of their own, and a producer, on three brokers.

    Args:
        cluster: the brokers.
        folder: for the state table and the ledgers.
    """

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self.site = KafkaSite(folder, kafka=cluster.config)
        self.site.start()
        config = self.site.settings.processor
        self.requests, self.responses = config.request_topic_name, config.response_topic_name
        self.records = self.site.new_topic(PARTITIONS)
        # Records whose response came too late are free again after this lock.
        locks = {"share_record_lock_duration_ms": "6000", "share_delivery_count_limit": "10"}
        self.group_id = self.site.new_group(share_heartbeat_interval_ms="1000", **locks)
        self._folder = folder
        self._produced: dict[int, int] = {}
        self._may_produce, self._is_paused, self._is_over = threading.Event(), threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._producer = threading.Thread(target=self._produce, name="producer", daemon=True)
        self._producer.start()
        channel = self.site.settings.channel_properties
        self.members = [
            MemberProcess(Specification(str(folder), self.group_id, name, [self.records], channel=channel))
            for name in WORKERS
        ]
        self._may_produce.set()
        self.await_records_after()

    @property
    def topics(self) -> tuple[str, str, str]:
        return self.requests, self.responses, self.records

    def await_records_after(self) -> float:
        """Return the seconds until a record of each partition that is produced from now on is accepted."""
        started_s = time.monotonic()
        missing = set(range(PARTITIONS))
        firsts = dict(self._produced)

        def are_accepted() -> bool:
            for ledger in (read_ledger(member.ledger_path) for member in self.members):
                missing.difference_update(
                    a.partition
                    for a in ledger.acknowledgements
                    if a.is_confirmed and a.offset >= firsts.get(a.partition, 0)
                )
            return not missing

        self.until(are_accepted, "new records of each partition are accepted")
        return time.monotonic() - started_s

    def check(self) -> None:
        """Drain; audit the state table, the requests and the ledgers; go on producing."""
        self._may_produce.clear()
        self._is_paused.wait()
        self.until(lambda: self.site.is_drained(self.group_id, self.records), "all records are finished")
        evidence = self.evidence()
        assert evidence.findings_when_drained() == []
        processor = self.site.settings.processor
        replayed = verify_requests(RequestReplay(str(self.site.state_path), self.site.log, processor, BROKER))
        assert (replayed.findings, replayed.gaps) == ([], [])
        self._is_paused.clear()
        self._may_produce.set()

    def evidence(self) -> Evidence:
        """All that an audit reads."""
        log = self.site.log
        partition = partition_for(self.group_id, 1)
        requests = log.offsets(self.requests)[partition]
        folder = ledgers_folder(self._folder, self.group_id)
        return Evidence(
            self.group_id,
            self.site.rows(),
            log.read(self.requests, partition, requests.start_offset, requests.end_offset),
            [
                decoded_response(record.value)
                for p, offsets in log.offsets(self.responses).items()
                for record in log.read(self.responses, p, offsets.start_offset, offsets.end_offset)
            ],
            [read_ledger(path) for path in sorted(folder.glob("*.jsonl"))],
            {(self.records, p): offsets.end_offset for p, offsets in log.offsets(self.records).items()},
        )

    def until(self, probe: Callable[[], bool], what: str) -> None:
        """Wait for a condition; a member or the producer that ended ends the wait."""

        def checked() -> bool:
            if self._failure is not None:
                raise self._failure
            for member in self.members:
                assert member.is_running, f"a member ended:\n{member.output[-4_000:]}"
            self.site.running_processor().raise_failure()
            return probe()

        eventually(checked, what, pause_s=POLL_S)

    def close(self) -> None:
        self._is_over.set()
        self._may_produce.set()
        for member in self.members:
            member.kill()
        self._producer.join()
        self.site.close()

    def _produce(self) -> None:
        partition = 0
        try:
            while not self._is_over.wait(PAUSE_S):
                if not self._may_produce.is_set():
                    self._is_paused.set()
                    self._may_produce.wait()
                    continue
                self.site.log.append(self.records, partition, [NewRecord(b"key", b"value")] * RECORDS_AT_ONCE)
                self._produced[partition] = self._produced.get(partition, 0) + RECORDS_AT_ONCE
                partition = (partition + 1) % PARTITIONS
        except BaseException as failure:
            if not self._is_over.is_set():
                self._failure = failure
            self._is_paused.set()


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    folder = tmp_path_factory.mktemp("cluster")
    with KafkaCluster("4.3.1", folder / "nodes") as cluster:
        (folder / "site").mkdir()
        load = Load(cluster, folder / "site")
        try:
            yield load
        finally:
            load.close()


def kill_leader(load: Load, topic: str) -> None:
    load.cluster.nodes[load.cluster.leader(topic, 0)].kill()


def restart_all(load: Load) -> None:
    """Stop and start one node after the other, each when all replicas are in sync again."""
    for node in load.cluster.nodes.values():
        node.shut_down()
        load.cluster.start()
        load.cluster.await_in_sync(load.topics)


def move_leaders(load: Load) -> None:
    """Move the first partition of each topic off the node that leads it."""
    plan = {}
    for topic in load.topics:
        leader = load.cluster.leader(topic, 0)
        plan[topic, 0] = [node for node in NODES if node != leader]
    load.cluster.reassign(plan)


FAULTS: dict[str, Callable[[Load], None]] = {
    "the leader of the requests is killed": lambda load: kill_leader(load, load.requests),
    "the leader of the responses is killed": lambda load: kill_leader(load, load.responses),
    "the leader of the records is killed": lambda load: kill_leader(load, load.records),
    "a rolling restart": restart_all,
    "partitions are moved off their leaders": move_leaders,
}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_and_nothing_accepted_is_delivered_again(load: Load, name: str) -> None:
    load.await_records_after()
    started_s = time.monotonic()
    FAULTS[name](load)
    made_s = time.monotonic()
    print(f"{name}: took {made_s - started_s:.1f} s, records were accepted {load.await_records_after():.1f} s later")
    load.cluster.start()
    load.check()
    if FAULTS[name] is move_leaders:
        load.cluster.reassign({(topic, 0): NODES for topic in load.topics})
    load.cluster.await_in_sync(load.topics)
