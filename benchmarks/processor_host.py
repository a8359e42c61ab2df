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

FIGURES_INTERVAL_S = 0.5


def main() -> None:
    """Run a processor until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="configuration file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--events", type=Path, required=True, help="file for events and figures; appended to")
    options = parser.parse_args()
    log_events(False)
    with options.events.open("a", encoding="utf-8") as events:
        settings = load_settings(options.config, os.environ, options.set)
        write(events, "begun")
        processor = Processor(settings)
        stop = stop_event(processor)
        processor.start()
        write(events, "started")
        writer = threading.Thread(target=write_figures, args=(events, processor, stop))
        writer.start()
        try:
            processor.run(stop.is_set)
        finally:
            stop.set()
            writer.join()
            processor.stop()
        write(events, "ended", dataclasses.asdict(processor.figures))


def stop_event(processor: Processor) -> threading.Event:
    """An event that SIGTERM or SIGINT sets; it wakes the processor, too."""
    stop = threading.Event()

    def request_stop(*_: object) -> None:
        stop.set()
        processor.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
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
