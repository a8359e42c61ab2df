"""Request → response: how long an acknowledgement takes to be durable and answered, idle and under load.

One member acknowledges one record at a time and waits for each answer. Under load, other members of the same group
acquire and acknowledge as fast as they can meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from sharegroup.spark.processor import Processor

from sharegroup.client.group_member import GroupMember
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.config.loader import load_settings
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log, NewRecord
from sharegroup.spark.session import build_session
from tests.support.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 4
RECORDS_PER_PARTITION = 400_000
WARM_UP = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100, help="round trips measured in each part")
    parser.add_argument("--loaders", type=int, default=2, help="members that make the load")
    parser.add_argument("--load-records", type=int, default=2_000, help="records that each of them fetches at once")
    parser.add_argument("--log", choices=("local", "kafka"), default="local", help="embedded, or on a new broker")
    options = parser.parse_args()
    print(f"settings: {vars(options)}, {PARTITIONS} partitions, local[4]")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        flags = {"state.table.path": folder / "state", "checkpoint.path": folder / "checkpoint"}
        if options.log == "kafka":
            broker = stack.enter_context(KafkaBroker("4.3.1", folder / "broker"))
            where = {"bootstrap.servers": broker.bootstrap_servers}
        else:
            where = {"log.path": str(folder / "log.db")}
        run(options, {**flags, **where, "group.share.assignors": "all"})


def run(options: argparse.Namespace, flags: Mapping[str, object]) -> None:
    settings = load_settings(ROOT / "conf" / f"{options.log}.yaml", {}, [f"{k}={v}" for k, v in flags.items()])
    log = open_log(settings.log)
    log.create_topic("records", PARTITIONS)
    for partition in range(PARTITIONS):
        for _ in range(RECORDS_PER_PARTITION // 10_000):
            log.append("records", partition, [NewRecord(None, b"x")] * 10_000)
    spark = build_session("round-trip")
    processor = Processor(spark, settings)
    processor.start()
    member = joined(log, "sampled", FetchSettings(max_records=1, batch_size=1, acquire_mode=AcquireMode.RECORD_LIMIT))
    round_trips(member, WARM_UP)
    report("idle", round_trips(member, options.samples), processor)
    stop = threading.Event()
    loaders = [threading.Thread(target=load, args=(log, n, options.load_records, stop)) for n in range(options.loaders)]
    for thread in loaders:
        thread.start()
    round_trips(member, WARM_UP)
    report("under load", round_trips(member, options.samples), processor)
    stop.set()
    for thread in loaders:
        thread.join()
    member.close(30_000)
    progress = processor.last_progress()
    if progress:
        print(f"last batch, ms: {progress}")
    processor.stop()
    spark.stop()
    log.close()


def joined(log: Log, client_id: str, fetch: FetchSettings) -> GroupMember:
    member = GroupMember(log, MemberSettings(group_id="orders", client_id=client_id, fetch=fetch, prefetch_count=100))
    member.subscribe(["records"])
    return member


def round_trips(member: GroupMember, count: int) -> list[float]:
    """Seconds from an acknowledgement to its answer, one after the other."""
    seconds: list[float] = []
    while len(seconds) < count:
        acquisition = member.next_acquisition(60_000)
        if acquisition is None:
            raise SystemExit("no records within 60 s")
        started = time.perf_counter()
        member.acknowledge([held.acknowledgement(AcknowledgeType.ACCEPT) for held in acquisition.ranges])
        member.flush(60_000)
        seconds.append(time.perf_counter() - started)
    return seconds


def load(log: Log, number: int, max_records: int, stop: threading.Event) -> None:
    fetch = FetchSettings(max_records=max_records, batch_size=max_records)
    member = joined(log, f"loader-{number}", fetch)
    while not stop.is_set():
        acquisition = member.next_acquisition(1_000)
        if acquisition:
            member.acknowledge([held.acknowledgement(AcknowledgeType.ACCEPT) for held in acquisition.ranges])
    member.close(30_000)


def report(part: str, seconds: Sequence[float], processor: Processor) -> None:
    commits = list(processor.metrics.commit_seconds)
    print(
        f"{part:<11} request → response p50 {percentile(seconds, 50):.3f} s, p99 {percentile(seconds, 99):.3f} s; "
        f"Delta commit p50 {1000 * percentile(commits, 50):.1f} ms, p99 {1000 * percentile(commits, 99):.1f} ms; "
        f"{processor.metrics.batches} batches, {processor.metrics.messages} messages"
    )


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


if __name__ == "__main__":
    main()
