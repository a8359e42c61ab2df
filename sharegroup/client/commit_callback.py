"""Tells the application, on its own thread, what became of its acknowledgements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from sharegroup.client.acknowledge_arguments import APPLICATION_TYPES
from sharegroup.client.kafka_exceptions import exception_of
from sharegroup.client.kafka_types import KafkaException, TopicPartition
from sharegroup.client.session_events import Acknowledged

CommitCallback = Callable[[dict[TopicPartition, set[int]], KafkaException | None], object]
"""callback(offsets by partition, exception or None)."""


class CommitCallbackQueue:
    """Results that wait for the next call of the application; gaps and unread records, which it never saw, do not."""

    def __init__(self) -> None:
        self._callback: CommitCallback | None = None
        self._queue: deque[Acknowledged] = deque()

    def set_callback(self, callback: CommitCallback | None) -> None:
        """Call this from now on; None is nothing.

        Raises:
            TypeError: it is neither callable nor None.
        """
        if callback is not None and not callable(callback):
            raise TypeError("callback must be callable or None")
        self._callback = callback

    def add(self, results: Iterable[Acknowledged]) -> None:
        """Have these told."""
        self._queue.extend(results)

    def serve(self) -> None:
        """Call the callback for each result; an exception of the callback leaves the rest for the next time."""
        while self._queue:
            result = self._queue.popleft()
            offsets = {
                offset
                for acknowledgement in result.acknowledgements
                if acknowledgement.acknowledge_type in APPLICATION_TYPES
                for offset in acknowledgement.offsets
            }
            if offsets and self._callback is not None:
                self._callback({TopicPartition(result.topic, result.partition): offsets}, exception_of(result.error))
