"""Drain a year of flights with a share group of Spark workers and Python consumers, and account for every record.

Everything runs on this machine: the embedded log, the processor, two Spark workers, two Python consumers, and one
more that is killed while it holds records. Exit codes: 0 all records accounted for, 1 something does not add up,
2 it could not run.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sharegroup.config.loader import load_settings
from sharegroup.environment import check_java, check_python, claim_folder
from sharegroup.errors import ShareGroupError

ROOT = Path(__file__).resolve().parent.parent
# The example is no part of the installed package.
sys.path.insert(0, str(ROOT))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "conf" / "flights.yaml", help="configuration file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--folder", type=Path, default=Path("build/flights"), help="folder of the run; emptied first")
    parser.add_argument("--verbose", action="store_true", help="log what the parts do")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.ERROR)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    console = Console(stderr=False)
    try:
        return run(options, console)
    except ShareGroupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(options: argparse.Namespace, console: Console) -> int:
    """Check the machine, run the drill, print the account."""
    check_python()
    os.environ.setdefault("JAVA_HOME", str(Path(check_java()).resolve().parent.parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark is imported once Java is known to be there.
    from examples.flights.drill import Drill
    from examples.flights.report import render
    from sharegroup.spark.classic import log_all_events
    from sharegroup.spark.session import build_session

    folder = options.folder
    overrides = [f"{key}={folder / name}" for key, name in PATHS.items()] + options.set
    settings = load_settings(options.config, os.environ, overrides)
    member = [str(ROOT / "jobs" / "flights_member.py"), "--log-path", str(folder / PATHS["log.path"])]
    member += [argument for setting in settings.consumer.items() for argument in ("--set", "=".join(setting))]
    with claim_folder(folder):
        drill = Drill(settings, folder, member, console)
        drill.prepare()
        spark = build_session("flights")
        if options.verbose:
            log_all_events(spark)
        try:
            drill.drain(spark)
            account = drill.account()
        finally:
            spark.stop()
    console.print(render(account))
    for disagreement in account.disagreements:
        print(f"error: {disagreement}", file=sys.stderr)
    return 1 if account.disagreements else 0


PATHS = {"log.path": "log/log.db", "state.table.path": "state", "checkpoint.path": "checkpoint"}

if __name__ == "__main__":
    sys.exit(main())
