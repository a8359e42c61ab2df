"""ShareConsumerConfig: what an application sets on its share consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sharegroup.config.model import Config, Int, NonEmpty, invalid_relation, order_text

AcquireMode = Literal["batch_optimized", "record_limit"]

CONSUMER_REFUSAL = "cannot be set when using a share group"
"""What follows a refused key in the error, without the full stop; the text is Kafka's."""

CONSUMER_REFUSED: Mapping[str, str] = {
    "allow.auto.create.topics": "Topics are created by an administrator, never by a consumer.",
    "auto.offset.reset": "Set share.auto.offset.reset of the group instead.",
    "enable.auto.commit": "Choose share.acknowledgement.mode instead.",
    "group.instance.id": "A share group has no static members.",
    "group.protocol": "A share group has one protocol.",
    "group.remote.assignor": "The assignor is the broker's group.share.assignors.",
    "heartbeat.interval.ms": "Set share.heartbeat.interval.ms of the group instead.",
    "interceptor.classes": "A share consumer has no interceptors.",
    "isolation.level": "Set share.isolation.level of the group instead.",
    "partition.assignment.strategy": "The assignor is the broker's group.share.assignors.",
    "session.timeout.ms": "Set share.session.timeout.ms of the group instead.",
}
"""Keys that are refused for members of a share group, as by Kafka, except the first, which Kafka accepts."""


class ShareConsumerConfig(Config):
    """Configuration of a share consumer (KIP-932, ShareConsumerConfig of Kafka 4.3).

    `fetch.max.wait.ms` is 15,000 where Kafka has 500: a parked fetch is a row of state and costs nothing while it
    waits, but each fetch that is sent is a message for the processor. A fetch must be answered before its request
    times out, so `request.timeout.ms` is greater than `fetch.max.wait.ms`.
    """

    refused: ClassVar[Mapping[str, str]] = CONSUMER_REFUSED
    refusal: ClassVar[str] = CONSUMER_REFUSAL

    group_id: NonEmpty = Field(description="The share group.")
    client_id: str = Field(default="", description="Free name of the client, for people who read logs.")
    client_rack: str = Field(default="", description="Where the client is; free text, passed on with heartbeats.")
    share_acknowledgement_mode: Literal["implicit", "explicit"] = Field(
        default="implicit", description="Whether the next poll accepts the records of the last one, or the application."
    )
    share_acquire_mode: AcquireMode = Field(
        default="batch_optimized", description="Whether `max.poll.records` may be exceeded to the end of a run."
    )
    max_poll_records: Annotated[Int, Field(ge=1)] = Field(
        default=500, description="Records that one poll returns; a soft limit with `batch_optimized`."
    )
    max_poll_interval_ms: Annotated[Int, Field(ge=1)] = Field(
        default=300_000, description="Time between two polls after which the consumer leaves the group, in ms."
    )
    fetch_max_wait_ms: Annotated[Int, Field(ge=0)] = Field(
        default=15_000, description="Time for which a fetch waits for records to become available, in ms; Kafka: 500."
    )
    fetch_max_bytes: Annotated[Int, Field(ge=0)] = Field(
        default=52_428_800, description="Bytes of records that one poll reads; what it leaves, the next poll reads."
    )
    max_partition_fetch_bytes: Annotated[Int, Field(ge=0)] = Field(
        default=1_048_576, description="Bytes of records of one partition that one poll reads."
    )
    metadata_max_age_ms: Annotated[Int, Field(ge=0)] = Field(
        default=300_000, description="Time after which a subscription by pattern looks at the topics again, in ms."
    )
    request_timeout_ms: Annotated[Int, Field(ge=0)] = Field(
        default=30_000, description="Time after which a request without a response is sent again, in ms."
    )
    default_api_timeout_ms: Annotated[Int, Field(ge=0)] = Field(
        default=60_000,
        description="Time after which a call without a timeout of its own gives up, and acknowledgements without an "
        "answer have failed, in ms.",
    )

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        request, wait = "request.timeout.ms", "fetch.max.wait.ms"
        if self.request_timeout_ms <= self.fetch_max_wait_ms:
            text = order_text(request, self.request_timeout_ms, "greater than", wait, self.fetch_max_wait_ms)
            raise invalid_relation(text, request, wait)
        return self
