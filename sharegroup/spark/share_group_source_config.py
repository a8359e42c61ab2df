"""What `spark.readStream.format("sharegroup")` can be told: options, as Kafka and Spark spell them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sharegroup.client.settings import ChannelTopics
from sharegroup.config.consumer import CONSUMER_REFUSAL, CONSUMER_REFUSED, AcquireMode
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.model import Config, Int, NonEmpty, TopicNames
from sharegroup.errors import ConfigurationError

_KAFKA_PREFIX = "kafka."
_CHANNEL_DEFAULTS = ChannelTopics()


class ShareGroupSourceConfig(Config):
    """Options of a streaming query, but for those of the Kafka cluster, which begin with `kafka.`."""

    refused: ClassVar[Mapping[str, str]] = {
        **CONSUMER_REFUSED,
        "startingOffsets": "Set share.auto.offset.reset of the group instead: it says where the group begins.",
        "topics": "Set subscribe instead.",
    }
    refusal: ClassVar[str] = CONSUMER_REFUSAL

    group_id: NonEmpty = Field(description="The share group.")
    subscribe: TopicNames = Field(description="The topics, comma-separated.")
    log_path: str = Field(default="", description="File of the embedded log; none with `kafka.bootstrap.servers`.")
    client_id: str = Field(default="", description="Free name of the query, for people who read logs.")
    share_acknowledgement_mode: Literal["implicit", "explicit"] = Field(
        default="implicit",
        description="`implicit`: the commit of a batch accepts its records; "
        "`explicit`: `acknowledge` does so for each.",
    )
    share_acquire_mode: AcquireMode = Field(
        default="batch_optimized", description="Whether `max.poll.records` may be exceeded to the end of a run."
    )
    max_poll_records: Annotated[Int, Field(ge=1)] = Field(
        default=10_000, description="Records of a micro-batch; a soft limit with `batch_optimized`."
    )
    num_partitions: Annotated[Int, Field(ge=1)] = Field(
        default=2, alias="numPartitions", description="Tasks that share a micro-batch evenly."
    )
    request_topic_name: NonEmpty = Field(
        default=_CHANNEL_DEFAULTS.request_topic_name, description="As the processor's key of this name."
    )
    response_topic_name: NonEmpty = Field(
        default=_CHANNEL_DEFAULTS.response_topic_name, description="As the processor's key of this name."
    )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query was told.

    Attributes:
        log: path or address of the log, or the Kafka cluster that it is in.
        config: everything else.
    """

    log: str | KafkaConfig
    config: ShareGroupSourceConfig

    @property
    def is_explicit(self) -> bool:
        """Whether records are acknowledged one by one."""
        return self.config.share_acknowledgement_mode == "explicit"

    @property
    def channel_topics(self) -> ChannelTopics:
        """Names of the topics between the member and its processor."""
        return ChannelTopics(
            request_topic_name=self.config.request_topic_name, response_topic_name=self.config.response_topic_name
        )


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """What the options of a query say; Spark passes their names in lower case.

    Raises:
        ConfigurationError: an option is unknown, refused or missing, a value is not acceptable, or there is no log.
    """
    spelled = {name.lower(): name for name in (*ShareGroupSourceConfig.key_names(), *ShareGroupSourceConfig.refused)}
    given = {spelled.get(name, name): value for name, value in options.items()}
    kafka = {name.removeprefix(_KAFKA_PREFIX): value for name, value in given.items() if name.startswith(_KAFKA_PREFIX)}
    own = {name: value for name, value in given.items() if not name.startswith(_KAFKA_PREFIX)}
    config = ShareGroupSourceConfig.from_mapping(own)
    return SourceOptions(_log(config.log_path, kafka), config)


def _log(path: str, kafka: Mapping[str, str]) -> str | KafkaConfig:
    cluster = KafkaConfig.from_mapping(kafka)
    if bool(path) != bool(cluster.bootstrap_servers):
        return cluster if cluster.bootstrap_servers else path
    problem = "are both set" if path else "are both missing"
    raise ConfigurationError(
        f"The options log.path and kafka.bootstrap.servers {problem}.",
        "Set kafka.bootstrap.servers for Kafka, or log.path for the embedded log: a query has one log.",
    )
