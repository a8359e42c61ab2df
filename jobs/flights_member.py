"""One Python member of the flights example; started by flights.py, ended by SIGTERM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sharegroup.errors import ShareGroupError

# The example is no part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main(argv: Sequence[str] | None = None) -> int:
    """Consume until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log-path", required=True, help="the embedded log")
    parser.add_argument("--name", required=True, help="client.id")
    parser.add_argument("--sink", type=Path, required=True, help="Delta table for flown flights")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="consumer configuration")
    options = parser.parse_args(argv)
    from examples.flights.python_member import run_member

    config = dict(setting.split("=", 1) for setting in options.set)
    config |= {"log.path": options.log_path, "group.id": "flights", "client.id": options.name}
    try:
        run_member(config, options.sink)
    except ShareGroupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
