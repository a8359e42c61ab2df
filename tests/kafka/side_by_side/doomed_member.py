"""A member that polls once, says which records it got, and hangs until it is killed.

`python -m tests.kafka.side_by_side.doomed_member MODULE:CLASS CONFIG-AS-JSON TOPIC TIMEOUT-S`
"""

from __future__ import annotations

import importlib
import json
import signal
import sys


def main() -> None:
    module, name = sys.argv[1].split(":")
    consumer = getattr(importlib.import_module(module), name)(json.loads(sys.argv[2]))
    consumer.subscribe([sys.argv[3]])
    messages = consumer.poll(float(sys.argv[4]))
    print(json.dumps([(message.value().decode(), message.delivery_count()) for message in messages]), flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
