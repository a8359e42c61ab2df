"""The processor in a process without Spark: `python -m benchmarks.processor_host --config FILE --set KEY=VALUE`.

It writes its events and the loop's cumulative figures to a file, one JSON object in a line, with the time on the
monotonic clock. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from sharegroup.config.loader import load_settings
from sharegroup.event_log import log_events
from sharegroup.processor.processor import Processor
from sharegroup.processor.standby.host import serve_in_turn

FIGURES_INTERVAL_S = 0.5


def main() -> None:
    """Run a processor until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="configuration file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--events", type=Path, required=True, help="file for events and figures; appended to")
    parser.add_argument("--standby", action="store_true", help="stand by while another processor works")
    options = parser.parse_args()
    log_events(False)
    with options.events.open("a", encoding="utf-8") as events:
        settings = load_settings(options.config, os.environ, options.set)
        write(events, "begun")
        stop = stop_event()
        if options.standby:
            serve_in_turn(
                settings,
                lambda table: Processor(settings, table=table),
                lambda processor: serve(processor, events, stop),
                stop,
            )
        else:
            serve(Processor(settings), events, stop)


def serve(processor: Processor, events: TextIO, stop: threading.Event) -> None:
    """Run a processor, and write its figures, until it fails or is to stop."""
    is_over = threading.Event()

    def wake_at_stop() -> None:
        stop.wait()
        processor.wake()

    helpers = [
        threading.Thread(target=write_figures, args=(events, processor, is_over)),
        threading.Thread(target=wake_at_stop, daemon=True),
    ]
    try:
        processor.start()
        write(events, "started")
        for helper in helpers:
            helper.start()
        processor.run(stop.is_set)
    finally:
        is_over.set()
        processor.stop()
        if helpers[0].is_alive():
            helpers[0].join()
    write(events, "ended", dataclasses.asdict(processor.figures))


def stop_event() -> threading.Event:
    """An event that SIGTERM or SIGINT sets."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def write_figures(events: TextIO, processor: Processor, stop: threading.Event) -> None:
    """Write the figures again and again, until the processor stops."""
    while not stop.wait(FIGURES_INTERVAL_S):
        write(events, "figures", dataclasses.asdict(processor.figures))


def write(events: TextIO, event: str, figures: dict[str, Any] | None = None) -> None:
    """Append one line."""
    events.write(json.dumps({"event": event, "time_s": time.monotonic(), "figures": figures}, default=str) + "\n")
    events.flush()


if __name__ == "__main__":
    main()
