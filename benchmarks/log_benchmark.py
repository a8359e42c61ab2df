"""Throughput and latency of the logs: `python benchmarks/log_benchmark.py ADDRESS...`.

An address is what `open_log` takes, such as build/benchmark.db or kafka://localhost:9092. Records have 200 bytes.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log, NewRecord

RECORDS = 100_000
VALUE = b"v" * 200
ROUNDS = 100


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def millisecond_quantiles(samples: list[float]) -> str:
    cuts = statistics.quantiles(samples, n=100)
    return f"{cuts[49] * 1000:.1f} / {cuts[98] * 1000:.1f} ms"


def measure_throughput(log: Log, topic: str) -> None:
    for size in (1_000, 10_000):
        batch = [NewRecord(None, VALUE)] * size
        append = partial(log.append, topic, 0, batch)
        took = seconds(partial(repeated, append, RECORDS // size))
        print(f"  append, {size} records a call: {RECORDS / took:,.0f} records/s")
    for size in (500, 10_000):
        took = seconds(partial(read_all, log, topic, size))
        print(f"  read in order, {size} records a call: {RECORDS / took:,.0f} records/s")


def repeated(call: Callable[[], object], count: int) -> None:
    for _ in range(count):
        call()


def read_all(log: Log, topic: str, size: int) -> None:
    for start in range(0, RECORDS, size):
        log.read(topic, 0, start, start + size)


def measure_calls(log: Log, topic: str) -> None:
    one = [NewRecord(None, VALUE)]
    print("  median / 99 % of", ROUNDS, "calls:")
    for name, call in (
        ("append one record", lambda: log.append(topic, 0, one)),
        ("offsets", lambda: log.offsets(topic)),
        ("describe", lambda: log.describe_topic(topic)),
        ("read 100 records at another place", lambda: log.read(topic, 0, 50_000, 50_100)),
    ):
        call()
        print(f"    {name}: {millisecond_quantiles([seconds(call) for _ in range(ROUNDS)])}")


def measure_take(log: Log, other: Log, topic: str) -> None:
    """From the return of an append in one client to the return of a take in another one."""
    samples: list[float] = []
    follower = log.follow(topic, {0: log.append(topic, 0, [])})
    for _ in range(ROUNDS):
        woken: list[float] = []

        def take(woken: list[float] = woken) -> None:
            assert follower.take(1, 1_000, 10_000)
            woken.append(time.perf_counter())

        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(0.02)
        other.append(topic, 0, [NewRecord(None, VALUE)])
        appended = time.perf_counter()
        thread.join()
        samples.append(woken[0] - appended)
    follower.close()
    print(f"    append returned until take returned: {millisecond_quantiles(samples)}")


def main(addresses: list[str]) -> None:
    for address in addresses:
        print(address)
        with open_log(address) as log, open_log(address) as other:
            topic = log.create_topic(f"benchmark-{time.time_ns()}", 1).name
            log.append(topic, 0, [NewRecord(None, VALUE)])
            measure_throughput(log, topic)
            measure_calls(log, topic)
            measure_take(log, other, topic)
            log.delete_topic(topic)


if __name__ == "__main__":
    main(sys.argv[1:])
