"""Beginnings and ends of the states of share-partitions, as the coordinator asks for them.

A state that is to end, or to be replaced, waits until its open writes are decided: it acquires nothing meanwhile, and
the message that ends it is applied again when a write is closed. After a takeover the coordinator asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.initialization import UninitializedPartitions
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.log_watches import LogWatches
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.config.group import GroupConfig
from sharegroup.core.records import PartitionKey
from sharegroup.protocol.internal_messages import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ShareGroupStateDeleted,
    ShareGroupStateInitialized,
)
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.rows import StateRow


class StateLifetimes:
    """Handler of the coordinator's requests to begin and to end states.

    Args:
        take_row: returns the row of all changes of a share-partition, None if there are none.
    """

    def __init__(
        self,
        partitions: LedPartitions,
        uninitialized: UninitializedPartitions,
        sessions: ShareSessions,
        watches: LogWatches,
        offsets: KnownOffsets,
        take_row: Callable[[LedPartition], StateRow | None],
    ) -> None:
        self._partitions = partitions
        self._uninitialized = uninitialized
        self._sessions = sessions
        self._watches = watches
        self._offsets = offsets
        self._take_row = take_row
        self._rows: list[tuple[int, StateRow]] = []
        self._postponed: list[LoggedRequest] = []
        """Messages that wait until open writes are decided."""

    def take_rows(self) -> list[tuple[int, StateRow]]:
        """Return the rows of states that ended since the last call, each with the offset of its message."""
        rows, self._rows = self._rows, []
        return rows

    def initialize(self, message: LoggedRequest, config: GroupConfig) -> list[ShareGroupStateInitialized]:
        """Begin states, or replace them, as soon as their start offsets are known; return the responses."""
        keys = self._uninitialized.ask(parsed(InitializeShareGroupState, message.envelope.body))
        started = self.start(keys, message, config)
        self._postpone(keys, message)
        return started

    def start(
        self, keys: Iterable[PartitionKey], message: LoggedRequest, config: GroupConfig
    ) -> list[ShareGroupStateInitialized]:
        """Create the state of those share-partitions that wait for one and can start now; return the responses."""
        keys = list(keys)
        started = self._uninitialized.start(keys, config, partial(self._end, message=message), message)
        for body in started:
            for topic in body.topics:
                for partition in topic.partitions:
                    self._sessions.led_changed((topic.topic_id, partition.partition_index))
        self._watches.unsettled.update(keys)
        return started

    def delete(self, message: LoggedRequest) -> list[ShareGroupStateDeleted]:
        """End the states of topics; return the response, none while open writes are undecided."""
        body = parsed(DeleteShareGroupState, message.envelope.body)
        topic_ids = list(dict.fromkeys(body.topic_ids))
        of_topics = (led for topic_id in topic_ids for led in self._partitions.of_topic(topic_id))
        ending = [led for led in of_topics if led.share_partition.state_epoch <= body.state_epoch]
        for led in ending:
            led.is_ending = True
        if self._postpone([led.key for led in ending], message):
            return []
        for led in ending:
            self._end(led, message)
            self._rows.append((message.offset, led.tombstone()))
            self._partitions.remove(led.key)
            self._sessions.led_changed(led.key)
            self._watches.unsettled.add(led.key)
        self._watches.unsettled.update(self._uninitialized.forget(topic_ids, body.state_epoch))
        self._offsets.forget(topic_id for topic_id in topic_ids if not self._partitions.has_topic(topic_id))
        return [ShareGroupStateDeleted(state_epoch=body.state_epoch, topic_ids=body.topic_ids)]

    def take_postponed(self, message: LoggedRequest) -> list[LoggedRequest]:
        """Return the messages that wait for open writes, to be applied again as of this one, which has closed some."""
        postponed, self._postponed = self._postponed, []
        return [each._replace(offset=message.offset, time_ms=message.time_ms) for each in postponed]

    def _postpone(self, keys: Iterable[PartitionKey], message: LoggedRequest) -> bool:
        """Keep a message for later if share-partitions whose state it ends have open writes; return True then."""
        ending = [led for key in keys if (led := self._partitions.get(key)) is not None and led.is_ending]
        is_postponed = any(led.share_partition.open_writes for led in ending)
        if is_postponed:
            self._partitions.changed.update(led.key for led in ending)
            self._postponed.append(message)
        return is_postponed

    def _end(self, led: LedPartition, message: LoggedRequest) -> None:
        """Keep the changes of a state that ends: their row precedes its tombstone, or the state that replaces it."""
        row = self._take_row(led)
        if row is not None:
            self._rows.append((message.offset, row))
