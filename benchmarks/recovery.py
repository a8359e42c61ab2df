"""The recovery of a processor after many commits, against one commit.

    python -m benchmarks.recovery --commits 100000 --rounds 5

Two processors on one log: the member of one accepts record by record, each acknowledgement a commit, while the table's
upkeep runs; the member of the other one accepts one record. The first is killed and started again at once: it reads
what the upkeep, which rests between its rounds, has not yet merged. Once the table has been quiet for a minute, so that
it has, and has cleaned up the log, each is killed and started again in turns. Recovery is from the new process's first
step, after its imports, to the first response.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.channel import Channel
from benchmarks.commit_cost import acknowledge_one, assembled
from benchmarks.host import ProcessorHost
from benchmarks.large_state import measured_recovery, table_text
from benchmarks.report import Figure, print_figures, print_rounds
from benchmarks.site import RECORDS_TOPIC, Site, add_arguments, open_site
from sharegroup.state.upkeep import COMMITS_PER_QUIET_ROUND

TARGET_RATIO = 1.5
_REPORT_INTERVAL = 10_000
_UPKEEP_COMMITS = 100
"""Commits after which a processor that was started again has its upkeep running."""
_LONGEST_UPKEEP_S = 600
_POLL_INTERVAL_S = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--commits", type=int, default=100_000, help="commits of the one processor")
    parser.add_argument("--rounds", type=int, default=5, help="recoveries of each")
    parser.add_argument(
        "--quiet",
        type=float,
        default=75,
        help="seconds without a change of the log before the rounds; upkeep cleans it up a minute after its last one",
    )
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        run(options, site)


def run(options: argparse.Namespace, site: Site) -> None:
    """Make the commits, then measure and print the recoveries."""
    prefix = f"recovery.{options.log}"
    site.create_topic(RECORDS_TOPIC, 1)
    sites = {"one": site.part("one"), "many": site.part("many")}
    commits = {"one": 1, "many": options.commits}
    with ExitStack() as stack:
        hosts = {name: stack.enter_context(ProcessorHost(options.host, part)) for name, part in sites.items()}
        for name, part in sites.items():
            make_commits(part, commits[name])
            print(f"{name}: {table_text(part)}", flush=True)
        print(f"many: {sites['many'].commits_since_checkpoint():,} commits wait for upkeep", flush=True)
        at_once_s = _seconds(hosts["many"], sites["many"])
        make_commits(sites["many"], _UPKEEP_COMMITS)
        await_upkeep(sites["many"], options.quiet)
        rounds = []
        for _ in range(options.rounds):
            seconds = {name: _seconds(hosts[name], part) for name, part in sites.items()}
            rounds.append(
                [
                    Figure(f"{prefix}.commits_{options.commits}", seconds["many"], "s"),
                    Figure(f"{prefix}.commits_1", seconds["one"], "s"),
                    Figure(f"{prefix}.ratio", seconds["many"] / seconds["one"], "x", TARGET_RATIO),
                ]
            )
    print_figures([Figure(f"{prefix}.commits_{options.commits}.at_once", at_once_s, "s")])
    print_rounds(rounds)


def await_upkeep(site: Site, quiet_s: float) -> None:
    """Wait until the table's upkeep has caught up with the commits, and changes the log no more."""
    give_up_s = time.monotonic() + _LONGEST_UPKEEP_S
    log = site.table / "_delta_log"
    while (count := site.commits_since_checkpoint()) > COMMITS_PER_QUIET_ROUND or _age_s(log) < quiet_s:
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{count} commits wait for upkeep after {_LONGEST_UPKEEP_S} s.")
        time.sleep(_POLL_INTERVAL_S)


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _seconds(host: ProcessorHost, site: Site) -> float:
    recovery = measured_recovery(host, site)
    return recovery.from_first_step_s or recovery.from_launch_s


def make_commits(site: Site, count: int) -> None:
    """Let one member accept so many records one by one."""
    channel = Channel(site.channel)
    member = assembled(channel, RECORDS_TOPIC, "members", 1, count)
    for number in range(count):
        acknowledge_one(channel, member)
        if number % _REPORT_INTERVAL == _REPORT_INTERVAL - 1:
            print(f"{number + 1:,} of {count:,} commits", flush=True)
    channel.close()


if __name__ == "__main__":
    main()
