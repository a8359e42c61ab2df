"""ProcessorConfig: where the processor keeps its logs and its state, and how much it takes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from sharegroup.config.local_path import LocalPath
from sharegroup.config.model import Allowed, Config, Int, Long, NonEmpty, TopicName, invalid_relation, invalid_value


def _parse_path(value: object) -> object:
    if value == "":
        raise invalid_value("Value must not be empty")
    return value


class ProcessorConfig(Config):
    """Configuration of the processor, and of everything that exchanges messages with it.

    Where the log and the state are has no default: state that appears in a new place because a program was started in
    another folder looks like state that is lost. Relative paths are relative to the working directory. Partition
    counts are fixed by the first start.
    """

    log_path: Annotated[Path | None, BeforeValidator(_parse_path), Allowed("a path")] = Field(
        default=None, description="File of the embedded log; none with `bootstrap.servers`, where the log is in Kafka."
    )
    state_table_path: LocalPath = Field(description="Folder of the Delta state table.")
    checkpoint_path: LocalPath = Field(
        description="Folder of Spark's streaming checkpoints on this machine; each start begins a new one."
    )
    request_topic_name: TopicName = Field(default="__share_requests", description="Topic of the request log.")
    request_topic_partitions: Annotated[Int, Field(ge=1, le=1_000)] = Field(
        default=1, description="Its partitions; all messages of a group are in one."
    )
    response_topic_name: TopicName = Field(default="__share_responses", description="Topic of the response log.")
    response_topic_partitions: Annotated[Int, Field(ge=1, le=1_000)] = Field(
        default=4, description="Its partitions; a member reads the one that its answers are in."
    )
    batch_duration_ms: Annotated[Int, Field(ge=0, le=3_600_000)] = Field(
        default=60_000,
        description="Duration of a micro-batch of the processor's query, in ms: the interval of Spark's checkpoints, "
        "not a latency: answers leave while the batch runs. 0 ends a batch when its messages are applied.",
    )
    max_requests_per_cut: Annotated[Int, Field(ge=1, le=1_000_000)] = Field(
        default=10_000, description="Messages of the request log that are taken and applied at once."
    )
    max_request_bytes_per_cut: Annotated[Int, Field(ge=1, le=1_073_741_824)] = Field(
        default=16_777_216,
        description="Bytes of the messages that are taken and applied at once; one message always fits.",
    )
    audit_retention_ms: Annotated[Long, Field(ge=0, le=3_153_600_000_000)] = Field(
        default=604_800_000,
        description="Age below which the maintenance prunes no row of the state table and deletes no message, in ms.",
    )
    metrics_port: Annotated[Int, Field(ge=0, le=65_535)] = Field(
        default=0, description="Port at which the processor shows its metrics to Prometheus; 0 shows them nowhere."
    )
    metrics_host: NonEmpty = Field(
        default="127.0.0.1", description="Address of that port; `0.0.0.0` is reached from other machines, too."
    )
    metrics_max_series: Annotated[Int, Field(ge=1, le=1_000_000)] = Field(
        default=1_000,
        description="Label sets that one metric is shown with; with more share-partitions, their topics are shown.",
    )

    @model_validator(mode="after")
    def _check_topics_differ(self) -> Self:
        request, response = "request.topic.name", "response.topic.name"
        if self.request_topic_name == self.response_topic_name:
            text = f"{request} must differ from {response}, but both are {self.request_topic_name}"
            raise invalid_relation(text, request, response)
        return self
