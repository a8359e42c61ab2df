"""The time from the launch of a processor's process to its first response, for a request that waits already.

    python -m benchmarks.first_response --host spark --samples 5

A processor is killed and launched again for each sample; with `--host spark` the JVM's start is in the figure.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.host import ProcessorHost
from benchmarks.large_state import measured_recovery
from benchmarks.report import Figure, percentile, print_figures
from benchmarks.site import RECORDS_TOPIC, Site, add_arguments, open_site

TARGET_S = 6.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--samples", type=int, default=5, help="launches")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Launch the processor again and again."""
    site.create_topic(RECORDS_TOPIC, 1)
    with ProcessorHost(options.host, site) as host:
        launches_s = [measured_recovery(host, site).from_launch_s for _ in range(options.samples)]
    # The target is that of the embedded log.
    target = TARGET_S if options.log == "local" else None
    name = f"first_response.{options.log}.{options.host}"
    return [
        Figure(f"{name}.p50", percentile(launches_s, 50), "s", target),
        Figure(f"{name}.max", max(launches_s), "s"),
    ]


if __name__ == "__main__":
    main()
