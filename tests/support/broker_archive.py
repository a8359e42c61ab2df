"""Archives the classes of Kafka's broker: with them, brokers of tests start in half the time.

    python -m tests.support.broker_archive 4.3.1

Nothing depends on it: a JVM that finds no archive that fits it loads its classes from the jars, as ever.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.kafka_broker import KafkaBroker, class_archive


class _ArchivedBroker(KafkaBroker):
    """A broker that archives its classes when it is shut down."""

    @property
    def new_archive(self) -> Path:
        """The archive, under a name that no other broker looks for."""
        return class_archive(self.version).with_suffix(".new")

    def _archive_options(self) -> list[str]:
        return [f"-XX:ArchiveClassesAtExit={self.new_archive}"]


def main() -> None:
    """Start a broker and shut it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="of the jars in build/jars/broker-VERSION")
    options = parser.parse_args()
    with TemporaryDirectory() as folder, _ArchivedBroker(options.version, Path(folder) / "broker") as broker:
        broker.shut_down()
    if broker.new_archive.exists():
        broker.new_archive.replace(class_archive(options.version))
    else:
        print(
            f"The classes of Kafka {options.version} could not be archived, so brokers start slowly.", file=sys.stderr
        )


if __name__ == "__main__":
    main()
