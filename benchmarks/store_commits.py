"""The time of a commit on an object store whose requests take longer, against the requests that it makes.

    python -m benchmarks.store_commits --delay-ms 20

S3Proxy runs behind a proxy that delays each request. A commit makes two puts and two lookups of keys, one after the
other; the same requests are measured by themselves in turns with the commits.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec

from benchmarks.report import Figure, check_load, latency_figures, percentile, print_figures, print_head
from sharegroup.config.table_location import TableLocation
from sharegroup.state.open_storage import storage_of
from sharegroup.state.writer import StateTableWriter
from tests.state.state_rows import marker_row
from tests.support.faulty_proxy import FaultyProxy
from tests.support.s3proxy import S3Proxy

TARGET_RATIO = 1.3
MOST_REQUESTS = 4
_WARM_UP = 5
_PROBE = "probe"
Arguments = ParamSpec("Arguments")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-ms", type=float, default=20, help="time that is added to each request")
    parser.add_argument("--commits", type=int, default=100, help="commits that are measured")
    parser.add_argument("--folder", type=Path, help="folder for a new folder with all data (default: the system's)")
    parser.add_argument("--any-load", action="store_true", help="measure on a busy machine, too")
    options = parser.parse_args(arguments)
    check_load(options.any_load)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=options.folder) as folder:
        print_head(options, Path(folder))
        with S3Proxy(Path(folder)) as server, FaultyProxy(server.port) as proxy:
            proxy.fail(delay_s=options.delay_ms / 1_000)
            print_figures(run(server.new_table(proxy.endpoint), proxy, options.commits))


def run(table: TableLocation, proxy: FaultyProxy, commit_count: int) -> list[Figure]:
    """Commit, and make the requests of a commit by themselves, in turns."""
    writer = StateTableWriter.open(table, {})
    storage = storage_of(table)
    commits_ms: list[float] = []
    puts_ms: list[float] = []
    lookups_ms: list[float] = []
    requests = 0
    for commit_id in range(commit_count + _WARM_UP):
        before = _request_count(proxy)
        commits_ms.append(_measured(writer.append, [marker_row(commit_id, commit_id + 1)], commit_id))
        requests = max(requests, _request_count(proxy) - before)
        puts_ms.append(_measured(storage.write, f"{_PROBE}-{commit_id}", memoryview(b"x" * 4_096)))
        lookups_ms.append(_measured(storage.exists, f"{_PROBE}-{commit_id + 1}"))
    trips_ms = 2 * percentile(puts_ms[_WARM_UP:], 50) + 2 * percentile(lookups_ms[_WARM_UP:], 50)
    commit_ms = percentile(commits_ms[_WARM_UP:], 50)
    return [
        *latency_figures("store_commits.s3.commit", commits_ms[_WARM_UP:]),
        Figure("store_commits.s3.round_trips", trips_ms, "ms"),
        Figure("store_commits.s3.requests", requests, "requests", MOST_REQUESTS),
        Figure("store_commits.s3.ratio", commit_ms / trips_ms, "x", TARGET_RATIO),
    ]


def _request_count(proxy: FaultyProxy) -> int:
    return sum(count for method, count in proxy.requests().items() if method != "failed")


def _measured(act: Callable[Arguments, object], *arguments: Arguments.args, **options: Arguments.kwargs) -> float:
    started_s = time.perf_counter()
    act(*arguments, **options)
    return 1_000 * (time.perf_counter() - started_s)


if __name__ == "__main__":
    main()
