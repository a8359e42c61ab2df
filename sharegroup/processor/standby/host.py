"""The life of a program that is started as a standby: it stands by, takes over, works, and stands by again when fenced.

Everything that a takeover needs is at hand before it: the state table is folded and followed, and the logs are
followed. Its host has a Spark session up, if it needs one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from sharegroup.config.loader import Settings
from sharegroup.errors import FencedProcessorError, LogUnavailableError, OlderStateError, StateTableError
from sharegroup.event_log import Event
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.processor.interpreter import InterpreterSettings
from sharegroup.processor.standby.followed_table import FollowedTable
from sharegroup.processor.standby.lock import ProcessorLocks
from sharegroup.processor.standby.standby import Standby
from sharegroup.processor.standby.watch import StandbyWatch

logger = logging.getLogger("sharegroup.processor")

_LOG_TIMEOUT_MS = 5_000
"""Time after which Kafka counts as away."""
_LONGEST_STEP_S = 0.5
_PROBE_STEP_S = 0.05


class HostedProcessor(Protocol):
    """The processor of a program that stands by; see `sharegroup.processor.processor.Processor`."""

    after_epoch: int | None
    fenced_epoch: int | None

    @property
    def is_started(self) -> bool:
        """Return True once it has taken over."""
        ...

    def warm_up(self, use: Callable[[Log], None]) -> None:
        """Use the log before the start, in a thread."""
        ...

    def stop(self) -> None:
        """Release all resources."""
        ...


Hosted = TypeVar("Hosted", bound=HostedProcessor)


def serve_in_turn(
    settings: Settings,
    new_processor: Callable[[FollowedTable], Hosted],
    serve: Callable[[Hosted], None],
    stop: threading.Event,
) -> None:
    """Stand by until there is no active processor, be it, and stand by again when another one has taken over.

    Args:
        new_processor: makes a processor that has the state table, which was followed.
        serve: starts a processor, works until `stop`, and stops it; it raises the processor's failure.

    Raises:
        ShareGroupError: the cause of a failure but being fenced, which makes it a standby again.
    """
    standby = Standby()
    while (processor := _await_turn(settings, new_processor, standby, stop)) is not None:
        try:
            serve(processor)
            return
        except FencedProcessorError as error:
            standby.lost(processor.fenced_epoch or standby.leader_epoch, time.monotonic())
            logger.warning(Event("standby_again", patience_s=standby.patience_s, reason=error.message))
        except OlderStateError:
            raise
        except (StateTableError, LogUnavailableError) as error:
            if processor.is_started:
                raise
            standby.failed(processor.fenced_epoch or standby.leader_epoch, time.monotonic())
            logger.warning(Event("standby_again", patience_s=standby.patience_s, reason=error.message))


def _await_turn(
    settings: Settings, new_processor: Callable[[FollowedTable], Hosted], standby: Standby, stop: threading.Event
) -> Hosted | None:
    """Stand by; return a processor to start when it is time, None when the work is to end."""
    config = settings.processor
    opened = _opened_table(settings, standby, stop)
    if opened is None:
        return None
    table, exists = opened
    processor = new_processor(table)
    if exists:
        interpreter = InterpreterSettings()
        locks = ProcessorLocks(config)
        log = open_log(settings.log, kafka_timeout_ms=_LOG_TIMEOUT_MS)
        watch = StandbyWatch(standby, log, config, table, locks)
        processor.warm_up(watch.warm_up)
        is_due = False
        try:
            with locks.watched(watch.wake):
                is_due = _watch(watch, standby, stop, interpreter)
        finally:
            interpreter.restore()
            watch.close()
            log.close()
            if not is_due:
                processor.stop()
        if not is_due:
            return None
        logger.warning(Event("standby_takes_over", after_epoch=standby.leader_epoch))
    processor.after_epoch = standby.leader_epoch
    return processor


def _watch(watch: StandbyWatch, standby: Standby, stop: threading.Event, interpreter: InterpreterSettings) -> bool:
    """Step until it is time, and return True; return False when the work is to end."""
    is_first = True
    while not stop.is_set():
        longest_s = _PROBE_STEP_S if watch.awaits_probe else _LONGEST_STEP_S
        wait_s = min(standby.wait_s(time.monotonic()), longest_s)
        if watch.step(round(wait_s * 1_000)):
            return True
        if not watch.is_log_there:
            stop.wait(_LONGEST_STEP_S)
        elif is_first:
            is_first = False
            # The fold lives as long as the standby: no collection of cycles scans it.
            interpreter.apply()
            logger.info(Event("standing_by", epoch=standby.leader_epoch, patience_s=standby.patience_s))
    return False


def _opened_table(settings: Settings, standby: Standby, stop: threading.Event) -> tuple[FollowedTable, bool] | None:
    """Return the state table, and whether it exists, once that can be known; None when the work is to end first."""
    while not stop.is_set():
        try:
            folds = 2 if settings.processor.metrics_port else 1
            table = FollowedTable.repaired(settings.processor.state_table_path, folds)
            return table, table.exists()
        except StateTableError as error:
            standby.table_away(time.monotonic())
            logger.warning(Event("standby_table_away", reason=error.message))
            stop.wait(_LONGEST_STEP_S)
    return None
