"""The channel from simulated members to the processor: one follower receives the responses to all of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.loader import Settings
from sharegroup.logs.open import open_log
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import NewRecord
from sharegroup.logs.topic_properties import new_topic_id
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message, ResponseEnvelope, decoded_response, request

_RESPONSES_PER_TAKE = 10_000
_BYTES_PER_TAKE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """The log of the processor and its topics; can be pickled.

    Attributes:
        log: the log, as `open_log` takes it.
    """

    log: str | KafkaConfig
    request_topic: str
    response_topic: str

    @classmethod
    def of(cls, settings: Settings) -> ChannelSettings:
        """The channel to a processor with these settings."""
        return cls(settings.log, settings.processor.request_topic_name, settings.processor.response_topic_name)


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request to send.

    Attributes:
        correlation_id: repeated in the response.
        member_id: the member that sends it, and gets the response.
    """

    correlation_id: int
    group_id: str
    member_id: str
    api_key: ApiKey
    body: Message


@dataclass(frozen=True, slots=True)
class SeenResponse:
    """A response, and when it was seen, on the monotonic clock in seconds."""

    seen_s: float
    envelope: ResponseEnvelope


class Channel:
    """Sends requests of many members, and receives the responses; one thread may send while another one receives.

    Loaders divide the response partitions among them, so that none reads the responses to the members of others.

    Raises:
        UnknownTopicError: no processor was ever started on this log.
    """

    def __init__(self, settings: ChannelSettings, number: int = 0, loader_count: int = 1) -> None:
        self._settings = settings
        self.log = open_log(settings.log)
        self._request_partition_count = self.log.describe_topic(settings.request_topic).partition_count
        offsets = self.log.offsets(settings.response_topic)
        self._response_partition_count = len(offsets)
        own = [partition for partition in offsets if partition % loader_count == number] or list(offsets)
        self._response_partitions = frozenset(own)
        self._member_ids: set[bytes] = set()
        self._correlation_ids = itertools.count(1)
        positions = {partition: offsets[partition].end_offset for partition in own}
        self._follower = self.log.follow(settings.response_topic, positions)

    def new_member_id(self) -> str:
        """Draw the id of a member whose responses this channel receives."""
        while True:
            member_id = new_topic_id()
            if partition_for(member_id, self._response_partition_count) in self._response_partitions:
                self._member_ids.add(member_id.encode())
                return member_id

    def next_correlation_id(self) -> int:
        """A number that no other request of this channel has."""
        return next(self._correlation_ids)

    def send(self, requests: Iterable[NewRequest]) -> None:
        """Append the requests at once, those of a group in their order."""
        records: dict[int, list[NewRecord]] = {}
        for new in requests:
            envelope = request(
                new.api_key,
                new.group_id,
                new.body,
                member_id=new.member_id,
                client_id="benchmark",
                correlation_id=new.correlation_id,
                reply_partition=partition_for(new.member_id, self._response_partition_count),
            )
            partition = partition_for(new.group_id, self._request_partition_count)
            records.setdefault(partition, []).append(NewRecord(new.group_id.encode(), envelope.encoded()))
        self.log.append_all(
            [
                (self._settings.request_topic, partition, partition_records)
                for partition, partition_records in records.items()
            ]
        )

    def receive(self, timeout_ms: int) -> list[SeenResponse]:
        """Wait for responses, and return those to this channel's members and those to everybody."""
        records = self._follower.take(_RESPONSES_PER_TAKE, _BYTES_PER_TAKE, timeout_ms)
        seen_s = time.monotonic()
        return [
            SeenResponse(seen_s, decoded_response(record.value))
            for record in records
            if not record.key or record.key in self._member_ids
        ]

    def call(self, new: NewRequest, timeout_s: float = 60) -> ResponseEnvelope:
        """Send one request and wait for its response; other responses are dropped."""
        return self.call_all([new], timeout_s)[new.correlation_id].envelope

    def call_all(self, requests: Sequence[NewRequest], timeout_s: float = 60) -> Mapping[int, SeenResponse]:
        """Send requests and wait for the responses to all of them, by correlation id.

        Raises:
            TimeoutError: some got no response in time.
        """
        awaited = {new.correlation_id for new in requests}
        responses: dict[int, SeenResponse] = {}
        self.send(requests)
        give_up_s = time.monotonic() + timeout_s
        while len(responses) < len(awaited):
            remaining_s = give_up_s - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError(f"{len(awaited) - len(responses)} of {len(awaited)} requests have no response.")
            for response in self.receive(int(1_000 * min(remaining_s, 1)) + 1):
                if response.envelope.correlation_id in awaited:
                    responses.setdefault(response.envelope.correlation_id, response)
        return responses

    def wake(self) -> None:
        """Let the `receive` at hand return."""
        self._follower.wake()

    def close(self) -> None:
        """Give everything back."""
        self._follower.close()
        self.log.close()
