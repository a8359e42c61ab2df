"""The time from SIGKILL of the active processor to the announcement of the standby that takes over.

    python -m benchmarks.standby --log kafka --host spark --rounds 5

`lock` is with the lock file, by which a standby on the same machine knows the end at once; `probes` is without it, as
on two machines. After the announcement members reopen their sessions, so they wait as long. Each round kills one of
two processors with a standby, at a random moment between two probes, and starts it again.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.host import ProcessorHost
from benchmarks.report import Figure, percentile, print_figures
from benchmarks.site import Site, add_arguments, open_site
from sharegroup.errors import ApiError
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.processor.standby.lock import lock_folder
from sharegroup.processor.standby.standby import PROBE_INTERVAL_S
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_response

TARGET_S = 4.0
WAYS = ("lock", "probes")
_TIMEOUT_S = 180.0
_POLL_INTERVAL_S = 0.05
_TAKE_MS = 200


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=5, help="kills of each kind")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Kill the active processor again and again."""
    chance = random.Random(options.seed)
    figures: list[Figure] = []
    with ExitStack() as stack, open_log(site.settings.log) as log:
        pair = [ProcessorHost(options.host, site, name, ["--standby"]) for name in ("one", "two")]
        for host in pair:
            stack.callback(host.kill)
        active, standby = pair
        active.start()
        standby.start()
        for way in WAYS:
            times_s = []
            for _ in range(options.rounds):
                _await_standing_by(standby)
                # So that a probe got its response, and the next one comes at a random moment.
                time.sleep((1 + chance.random()) * PROBE_INTERVAL_S)
                times_s.append(_takeover_s(log, site, active, hides_lock=way == "probes"))
                active, standby = standby, active
                standby.start()
            name = f"standby.{options.log}.{options.host}.{way}"
            figures += [
                Figure(f"{name}.p50", percentile(times_s, 50), "s", TARGET_S),
                Figure(f"{name}.max", max(times_s), "s"),
            ]
    return figures


def _takeover_s(log: Log, site: Site, active: ProcessorHost, hides_lock: bool) -> float:
    """Kill the active processor; return the seconds until the next one announces itself to members."""
    topic = site.settings.processor.response_topic_name
    follower = log.follow(topic, {0: log.offsets(topic, [0])[0].end_offset})
    try:
        if hides_lock:
            _remove_locks(site)
        started_s = time.monotonic()
        active.kill()
        while time.monotonic() < started_s + _TIMEOUT_S:
            for record in follower.take(1_000, 1_000_000, _TAKE_MS):
                if _is_announcement(record.value):
                    return time.monotonic() - started_s
    finally:
        follower.close()
    raise TimeoutError(f"No standby took over within {_TIMEOUT_S} s.")


def _remove_locks(site: Site) -> None:
    """Remove the lock files: standbys then know no more than those of another machine."""
    folder = lock_folder(site.settings.processor)
    for path in folder.iterdir() if folder is not None else ():
        path.unlink()


def _is_announcement(value: bytes | None) -> bool:
    try:
        return decoded_response(value).api_key == ApiKey.PROCESSOR_STARTED
    except ApiError:
        return False


def _await_standing_by(standby: ProcessorHost) -> None:
    """Wait until a process stands by, and not for the processor before."""
    give_up_s = time.monotonic() + _TIMEOUT_S
    while standby.output.count("event=standing_by") <= standby.output.count("event=standby_takes_over"):
        standby.check()
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"No process stands by within {_TIMEOUT_S} s.")
        time.sleep(_POLL_INTERVAL_S)


if __name__ == "__main__":
    main()
