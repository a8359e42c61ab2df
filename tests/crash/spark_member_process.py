"""A Spark worker in a process of its own: `python -m tests.crash.spark_member_process SPECIFICATION`, a JSON file.

Its handler accepts everything, except that the first call raises and the second one takes longer than the locks.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame

from sharegroup.spark.session import build_session
from sharegroup.spark.worker import process
from tests.crash.ledger import Delivery, LedgerWriter
from tests.crash.member_process import Specification
from tests.crash.processor_process import FAST_START

_HANG_S = 8.0


def main(path: Path) -> None:
    """Be a worker until killed."""
    spec = Specification(**json.loads(path.read_text()))
    ledger = LedgerWriter(spec.ledger_path)
    calls = itertools.count(1)

    def handler(records: DataFrame) -> None:
        call = next(calls)
        ledger.delivered(Delivery(*row) for row in records.select(*Delivery._fields).collect())
        if call == 1:
            ledger.met(error := RuntimeError("the handler raises"))
            raise error
        if call == 2:
            ledger.met(TimeoutError("the handler hangs"))
            threading.Event().wait(_HANG_S)

    config: dict[str, object] = {
        "log.path": f"{spec.folder}/log.db",
        "group.id": spec.group_id,
        "client.id": spec.client_id,
        "topics": ",".join(spec.topics),
        "max.poll.records": spec.max_poll_records,
    }
    process(build_session("sharegroup-crash-worker", FAST_START), config, handler)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
