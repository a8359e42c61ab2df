"""Configurations of members: ShareConsumerConfig of a share consumer, and WorkerConfig of a Spark worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sharegroup.config.model import (
    Allowed,
    Bool,
    Config,
    Int,
    Long,
    NonEmpty,
    TopicNames,
    invalid_relation,
    order_text,
)
from sharegroup.config.processor_config import TablePath
from sharegroup.config.table_location import STORAGE_OPTIONS, is_in_store

AcquireModeName = Literal["batch_optimized", "record_limit"]

CONSUMER_REFUSAL = "cannot be set when using a share group"
"""The text after a refused key in the error, without the full stop; the text is Kafka's."""

_IN_C = "Only programs in C can set it; consumers take error_cb, stats_cb, throttle_cb, oauth_cb and logger."
_READS = "What is read ahead follows from the acquired records."
_NO_KERBEROS = "Clients log in by PLAIN, SCRAM or OAUTHBEARER: librdkafka's packages for Python have no Kerberos."

CONSUMER_REFUSED: Mapping[str, str] = {
    "allow.auto.create.topics": "Topics are created by an administrator, never by a consumer.",
    "auto.offset.reset": "Set share.auto.offset.reset of the group instead.",
    "config.providers": "Values are taken as they are; the program that makes the consumer looks them up.",
    "enable.auto.commit": "Choose share.acknowledgement.mode instead.",
    "group.instance.id": "A share group has no static members.",
    "group.protocol": "A share group has one protocol.",
    "group.remote.assignor": "The assignor is the broker's group.share.assignors.",
    "heartbeat.interval.ms": "Set share.heartbeat.interval.ms of the group instead.",
    "interceptor.classes": "A share consumer has no interceptors.",
    "isolation.level": "Set share.isolation.level of the group instead.",
    "key.deserializer": "Keys are bytes; DeserializingShareConsumer takes deserializers.",
    "partition.assignment.strategy": "The assignor is the broker's group.share.assignors.",
    "session.timeout.ms": "Set share.session.timeout.ms of the group instead.",
    "value.deserializer": "Values are bytes; DeserializingShareConsumer takes deserializers.",
    "enable.partition.eof": "A share group has no position in a partition.",
    "fetch.error.backoff.ms": _READS,
    "fetch.queue.backoff.ms": _READS,
    "group.protocol.type": "A share group has one protocol.",
    "interceptors": _IN_C,
    "queued.max.messages.kbytes": _READS,
    "queued.min.messages": _READS,
    "topic.blacklist": "Subscribe to the topics that are wanted, by name or by a pattern.",
    "builtin.features": "It describes librdkafka's build.",
    "consume.callback.max.messages": "Records come from poll.",
    "plugin.library.paths": "Plugins would change each client of librdkafka here, those of requests included.",
    "sasl.kerberos.keytab": _NO_KERBEROS,
    "sasl.kerberos.principal": _NO_KERBEROS,
    **dict.fromkeys(
        (
            "background_event_cb",
            "closesocket_cb",
            "connect_cb",
            "default_topic_conf",
            "enabled_events",
            "log_cb",
            "oauthbearer_token_refresh_cb",
            "opaque",
            "open_cb",
            "resolve_cb",
            "socket_cb",
            "ssl.certificate.verify_cb",
            "ssl_ca",
            "ssl_certificate",
            "ssl_engine_callback_data",
            "ssl_key",
        ),
        _IN_C,
    ),
    **dict.fromkeys(
        ("consume_cb", "offset_commit_cb", "rebalance_cb"), "A share consumer has no such callback, as in Kafka."
    ),
}
"""Keys of Kafka's clients and of librdkafka that are refused for members of a share group.

Kafka accepts `allow.auto.create.topics` and `config.providers`, and its consumers need the deserializers.
"""

_CONNECTIONS = "Java's name; set librdkafka's: socket.connection.setup.timeout.ms, socket.{send,receive}.buffer.bytes."
_OWN_CLIENTS = "The clients of requests, responses and records have values of their own."
_NO_OFFSETS = "A share consumer commits no offsets, and has no coordinator."
_METRICS = "`ShareConsumer.metrics` has averages, maxima and rates of the last minute; nothing is pushed."

CONSUMER_WITHOUT_EFFECT: Mapping[str, str] = {
    "auto.commit.interval.ms": "Nothing is committed at intervals, as with Kafka's share consumer.",
    "check.crcs": "Checks of records are librdkafka's, or the embedded log's own.",
    "exclude.internal.topics": "A pattern never matches internal topics, as by default.",
    "fetch.min.bytes": "A fetch is completed as soon as a record can be acquired, as with the default of 1.",
    "internal.throw.on.fetch.stable.offset.unsupported": "It is internal to Kafka's Java client.",
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "receive.buffer.bytes": _CONNECTIONS,
    "reconnect.backoff.max.ms": "A Kafka node that is gone is tried again after 50 ms, and at last every second.",
    "reconnect.backoff.ms": "A Kafka node that is gone is tried again after 50 ms, and at last every second.",
    "retry.backoff.max.ms": "Requests are tried again after 100 ms, doubling to 1 s, which are the defaults.",
    "retry.backoff.ms": "Requests are tried again after 100 ms, doubling to 1 s, which are the defaults.",
    "send.buffer.bytes": _CONNECTIONS,
    "socket.connection.setup.timeout.max.ms": _CONNECTIONS,
    **dict.fromkeys(
        (
            "auto.commit.enable",
            "coordinator.query.interval.ms",
            "enable.auto.offset.store",
            "offset.store.method",
            "offset.store.path",
            "offset.store.sync.interval.ms",
        ),
        _NO_OFFSETS,
    ),
    **dict.fromkeys(
        (
            "default.topic.config",
            "internal.termination.signal",
            "log.queue",
            "max.in.flight",
            "max.in.flight.requests.per.connection",
            "message.copy.max.bytes",
            "message.max.bytes",
            "receive.message.max.bytes",
            "reconnect.backoff.jitter.ms",
            "socket.blocking.max.ms",
            "topic.metadata.propagation.max.ms",
            "topic.metadata.refresh.fast.cnt",
        ),
        _OWN_CLIENTS,
    ),
}
"""Keys of Kafka's share consumer and of librdkafka that are accepted and change nothing."""


class ShareConsumerConfig(Config):
    """Configuration of a share consumer (KIP-932, ShareConsumerConfig of Kafka 4.3).

    `fetch.max.wait.ms` is 15,000 where Kafka has 500: a parked fetch is a row of state and costs nothing while it
    waits, but each fetch that is sent is a message for the processor. A fetch must be completed before its request
    times out, so `request.timeout.ms` is greater than `fetch.max.wait.ms`.

    Unless `share.acquire.mode` is `record_limit`, the records of the next poll may be acquired and read while the
    application works. If no poll comes for three times the usual time between two, and for a second at least, they go
    back unread, and nothing is fetched until the next poll.
    """

    families: ClassVar[Mapping[str, Collection[str]]] = {"sink.storage": STORAGE_OPTIONS}
    refused: ClassVar[Mapping[str, str]] = CONSUMER_REFUSED
    refusal: ClassVar[str] = CONSUMER_REFUSAL
    without_effect: ClassVar[Mapping[str, str]] = CONSUMER_WITHOUT_EFFECT

    group_id: NonEmpty = Field(description="The share group.")
    client_id: str = Field(default="", description="Free name of the client, for people who read logs.")
    client_rack: str = Field(default="", description="Where the client is; free text, passed on with heartbeats.")
    share_acknowledgement_mode: Literal["implicit", "explicit"] = Field(
        default="implicit", description="Whether the next poll accepts the records of the last one, or the application."
    )
    share_acquire_mode: AcquireModeName = Field(
        default="batch_optimized",
        description="Whether `max.poll.records` may be exceeded to the end of a run. With `record_limit` nothing is "
        "fetched before the next poll, either.",
    )
    max_poll_records: Annotated[Int, Field(ge=1)] = Field(
        default=500,
        description="Records that one poll returns, so many from the first poll on where it is set; a soft limit with "
        "`batch_optimized`. Where it is not set, polls begin with one record, and grow to the default with what the "
        "application works off.",
    )
    max_poll_interval_ms: Annotated[Int, Field(ge=1)] = Field(
        default=300_000,
        description="Time between two polls after which the consumer leaves the group, in ms; the next poll raises "
        "_MAX_POLL_EXCEEDED, and joins again.",
    )
    fetch_max_wait_ms: Annotated[Int, Field(ge=0)] = Field(
        default=15_000, description="Time for which a fetch waits for records to become available, in ms; Kafka: 500."
    )
    fetch_max_bytes: Annotated[Int, Field(ge=0)] = Field(
        default=52_428_800, description="Bytes of values that are read at once; what is left, a later poll returns."
    )
    max_partition_fetch_bytes: Annotated[Int, Field(ge=0)] = Field(
        default=1_048_576, description="Bytes of values of one partition that are read at once."
    )
    metadata_max_age_ms: Annotated[Int, Field(ge=0)] = Field(
        default=300_000, description="Time after which a subscription by pattern lists the topics again, in ms."
    )
    request_timeout_ms: Annotated[Int, Field(ge=0)] = Field(
        default=30_000, description="Time after which a request without a response is sent again, in ms."
    )
    default_api_timeout_ms: Annotated[Int, Field(ge=0)] = Field(
        default=60_000,
        description="Time after which a call without a timeout of its own gives up, and acknowledgements without a "
        "response have failed, in ms.",
    )

    sink: TablePath = Field(
        default="",
        description="A Delta table; with it, `transaction` writes the results of records into the table "
        "exactly once, and the group has `share.exactly.once.enable`.",
    )
    sink_storage: Annotated[
        Mapping[str, str], Allowed("options of the store, see [object stores](object_stores.md)")
    ] = Field(
        default={},
        repr=False,
        description="Options of the sink's object store, one key each: `sink.storage.aws_region`.",
    )

    @model_validator(mode="after")
    def _check_sink(self) -> Self:
        if self.sink_storage and not is_in_store(self.sink):
            key = f"sink.storage.{min(self.sink_storage)}"
            where = f"sink is on a local disk: {self.sink}" if self.sink else "sink is not set"
            raise invalid_relation(f"{key} is set, but {where}", key)
        return self

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        request, wait = "request.timeout.ms", "fetch.max.wait.ms"
        if self.request_timeout_ms <= self.fetch_max_wait_ms:
            text = order_text(request, self.request_timeout_ms, "greater than", wait, self.fetch_max_wait_ms)
            raise invalid_relation(text, request, wait)
        return self


class AdminConfig(Config):
    """Configuration of an `AdminClient` (AdminClientConfig of Kafka 4.3)."""

    client_id: str = Field(default="", description="Free name of the client, for people who read logs.")
    default_api_timeout_ms: Annotated[Int, Field(ge=0)] = Field(
        default=60_000, description="Time after which a call without a timeout of its own gives up, in ms."
    )


class WorkerConfig(Config):
    """Configuration of a Spark worker.

    A worker pays for a Spark job with each range of records, not for each record. So its ranges grow to what the last
    ones worked off within 2 s, and further, up to 5 s, while that makes a record cheaper; slow records shrink them.
    """

    refused: ClassVar[Mapping[str, str]] = CONSUMER_REFUSED
    refusal: ClassVar[str] = CONSUMER_REFUSAL

    group_id: NonEmpty = Field(description="The share group.")
    topics: TopicNames = Field(description="The topics that the worker subscribes to.")
    client_id: str = Field(default="", description="Free name of the worker, for people who read logs.")
    share_acquire_mode: AcquireModeName = Field(
        default="batch_optimized",
        description="Whether `max.poll.records` may be exceeded to the end of a run. With `record_limit` nothing is "
        "fetched before a thread is free for it, either.",
    )
    max_poll_records: Annotated[Int, Field(ge=1)] = Field(
        default=10_000_000,
        description="Most records of a range, and where it is set, those of the first one; a soft limit with "
        "`batch_optimized`. Where it is not set, the first one has 100, and all have 256 MiB at most.",
    )
    worker_ranges_in_flight: Annotated[Int, Field(ge=1, le=64)] = Field(
        default=2, description="Ranges of records that are read or processed at once."
    )
    worker_bisect_on_error: Bool = Field(
        default=True,
        description="Whether a handler that fails is called again with halves of its records, down to single ones, so "
        "that only those are released that it cannot process. With `false`, all records of an acquisition are, when it "
        "fails with them again after it accepted others.",
    )
    worker_renew_max_ms: Annotated[Long, Field(ge=0)] = Field(
        default=1_800_000,
        description="How long a handler may work on one batch, in ms: the locks are renewed for so long, then the "
        "handler is cancelled and its records are released; unread, if it had failed with them before.",
    )
    worker_metrics_port: Annotated[Int, Field(ge=0, le=65_535)] = Field(
        default=0, description="Port at which the worker shows its metrics to Prometheus; 0 is none."
    )
    worker_metrics_host: NonEmpty = Field(
        default="127.0.0.1", description="Address of that port; `0.0.0.0` is reached from other machines, too."
    )
