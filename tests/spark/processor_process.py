"""A processor in a process of its own, for tests that kill it: `python -m tests.spark.processor_process FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from sharegroup.spark.session import build_session
from tests.spark.site import Site


def main(folder: Path) -> None:
    """Run until killed."""
    spark = build_session("sharegroup-killed")
    Site(spark, folder).start().await_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
