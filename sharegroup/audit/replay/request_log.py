"""The request log, read as audits need it: cut by cut, and the announcements of the processors."""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.errors import ApiError, OffsetOutOfRangeError
from sharegroup.logs.port import Log, LogRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import decoded_request

_READ_AHEAD = 5_000
_ANNOUNCEMENT = f'"api_key":{ApiKey.PROCESSOR_STARTED.value}'.encode()


class RequestLog:
    """Reads the partitions of the request log forwards."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        offsets = log.offsets(topic)
        self._starts = {partition: of.start_offset for partition, of in offsets.items()}
        self._ends = {partition: of.end_offset for partition, of in offsets.items()}
        self._read: dict[int, tuple[int, list[LogRecord], int]] = {}

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions of the topic."""
        return sorted(self._starts)

    def start_offset(self, partition: int) -> int:
        """Return the offset of the first message that is still there."""
        return self._starts.get(partition, 0)

    def cut(self, partition: int, start_offset: int, end_offset: int) -> list[LogRecord]:
        """Return the messages of a cut.

        Raises:
            OffsetOutOfRangeError: they are not all in the log any more.
        """
        if start_offset < self.start_offset(partition) or end_offset > self._ends.get(partition, 0):
            raise OffsetOutOfRangeError(
                f"Messages {start_offset} to {end_offset - 1} of request partition {partition} are not in the log, "
                f"which has {self.start_offset(partition)} to {self._ends.get(partition, 0) - 1}."
            )
        first, records, end = self._read.get(partition, (0, [], 0))
        if start_offset < first or end_offset > end:
            end = min(max(end_offset, start_offset + _READ_AHEAD), self._ends[partition])
            records = self._log.read(self._topic, partition, start_offset, end)
            first = start_offset
        cut = [record for record in records if start_offset <= record.offset < end_offset]
        self._read[partition] = start_offset, [record for record in records if record.offset >= start_offset], end
        return cut

    def announcement(self, partition: int, start_offset: int, leader_epoch: int) -> LogRecord | None:
        """Return the announcement of a processor, None when it is not in the log.

        Args:
            start_offset: where the processor began; it announced itself at this offset or later.
        """
        start = max(start_offset, self.start_offset(partition))
        while start < self._ends.get(partition, 0):
            end = min(start + _READ_AHEAD, self._ends[partition])
            for record in self._log.read(self._topic, partition, start, end):
                if _ANNOUNCEMENT in (record.value or b"") and _epoch_of(record) == leader_epoch:
                    return record
            start = end
        return None


def _epoch_of(record: LogRecord) -> int:
    try:
        return decoded_request(record.value).leader_epoch
    except ApiError:
        return -1
