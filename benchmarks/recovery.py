"""The recovery of a processor after many commits, against one commit.

    python -m benchmarks.recovery --commits 100000 --rounds 5

Two processors on one log: the member of one accepts record by record, each acknowledgement a commit, while the table's
upkeep runs; the member of the other one accepts one record. Then each is killed and started again in turns. Recovery is
from the new process's first step, after its imports, to the first answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.channel import Channel
from benchmarks.commit_cost import acknowledge_one, assembled
from benchmarks.host import ProcessorHost
from benchmarks.large_state import measured_recovery, table_text
from benchmarks.report import Figure, print_rounds
from benchmarks.site import RECORDS_TOPIC, Site, add_arguments, open_site

TARGET_RATIO = 1.5
_REPORT_INTERVAL = 10_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--commits", type=int, default=100_000, help="commits of the one processor")
    parser.add_argument("--rounds", type=int, default=5, help="recoveries of each")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_rounds(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[list[Figure]]:
    """Make the commits, then measure the recoveries."""
    site.create_topic(RECORDS_TOPIC, 1)
    sites = {"one": site.part("one"), "many": site.part("many")}
    commits = {"one": 1, "many": options.commits}
    with ExitStack() as stack:
        hosts = {name: stack.enter_context(ProcessorHost(options.host, part)) for name, part in sites.items()}
        for name, part in sites.items():
            make_commits(part, commits[name])
            print(f"{name}: {table_text(part)}", flush=True)
        rounds = []
        for _ in range(options.rounds):
            recoveries = {name: measured_recovery(hosts[name], part) for name, part in sites.items()}
            seconds = {name: each.from_first_step_s or each.from_launch_s for name, each in recoveries.items()}
            prefix = f"recovery.{options.log}"
            rounds.append(
                [
                    Figure(f"{prefix}.commits_{options.commits}", seconds["many"], "s"),
                    Figure(f"{prefix}.commits_1", seconds["one"], "s"),
                    Figure(f"{prefix}.ratio", seconds["many"] / seconds["one"], "x", TARGET_RATIO),
                ]
            )
    return rounds


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
