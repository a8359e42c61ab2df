"""The processor: all share groups of one request log, on a thread that its host lends it.

It has no Spark in it. `sharegroup.spark.processor_query` hosts it in a streaming query; tests and simulations host it
in a process of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sharegroup.actor.effects import WriteDeadLetters
from sharegroup.config.loader import Settings
from sharegroup.errors import LogError, ProcessorStoppedError, ShareGroupError
from sharegroup.event_log import Event
from sharegroup.logs.open import ENDLESS_MS, open_log
from sharegroup.logs.port import Log, LogRecord
from sharegroup.processor.activity import GroupActivity
from sharegroup.processor.commit import Commit
from sharegroup.processor.commit_events import log_commit
from sharegroup.processor.dead_letter_writer import DeadLetterMetrics, DeadLetterWriter
from sharegroup.processor.figures import LoopFigures
from sharegroup.processor.group_defaults import initial_configuration
from sharegroup.processor.groups import Groups, Rebuild
from sharegroup.processor.log_watch import LogWatch
from sharegroup.processor.loop import Loop
from sharegroup.processor.metrics_feed import MetricsFeed
from sharegroup.processor.partition_clock import PartitionClocks
from sharegroup.processor.takeover import Takeover, take_over
from sharegroup.processor.timers import Timers
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import RequestEnvelope, request
from sharegroup.state.reader import StateTableReader
from sharegroup.state.upkeep import UpkeepProcess

logger = logging.getLogger("sharegroup.processor")

_STOP_PATIENCE_S = 10
_STOP_LOOK_S = 0.2
_CHECK_INTERVAL_S = 0.5


class Processor:
    """Runs all share groups of one request log.

    Args:
        settings: configuration of the processor, of the broker and of groups.
        accepts_older_state: whether the state table may be an older copy than the request log.
        reached: called at each point that a commit passes, on the thread that passes it.

    Example:
        processor = Processor(settings)
        processor.start()
        processor.run(stop.is_set)
        processor.stop()
    """

    def __init__(
        self,
        settings: Settings,
        *,
        accepts_older_state: bool = False,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._accepts_older_state = accepts_older_state
        self._reached = reached
        # Kafka may be away for as long as it likes: nothing is lost, and members wait, too.
        self._log: Log = open_log(settings.log, kafka_timeout_ms=ENDLESS_MS)
        self._loop: Loop | None = None
        self._takeover: Takeover | None = None
        self._watch: LogWatch | None = None
        self._dead_letters: DeadLetterWriter | None = None
        self._activity: GroupActivity | None = None
        self._metrics: MetricsFeed | None = None
        self._upkeep: UpkeepProcess | None = None
        self._is_stopping = threading.Event()
        self._failure: BaseException | None = None
