"""A process that maintains the state table again and again, for the tests that run it beside a writer or kill it.

Run as `python -m tests.state.maintenance_process PATH`; it prints `ready`, waits for a line, then prints a line for
each round that it has done.
"""

from __future__ import annotations

import sys
from itertools import count

from sharegroup.state.maintenance import compact, take_snapshot, vacuum
from sharegroup.state.pruning import prune
from tests.state.conftest import FAR_FUTURE_MS

if __name__ == "__main__":
    path = sys.argv[1]
    print("ready", flush=True)
    sys.stdin.readline()
    for number in count():
        take_snapshot(path, FAR_FUTURE_MS)
        prune(path, FAR_FUTURE_MS)
        compact(path)
        vacuum(path)
        print(number, flush=True)
