"""Options of `spark.readStream.format("sharegroup")`, in the spelling of Kafka and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sharegroup.client.settings import ChannelTopics
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.members import CONSUMER_REFUSAL, CONSUMER_REFUSED, AcquireModeName
from sharegroup.config.model import Int, NonEmpty, TopicNames, invalid_relation
from sharegroup.config.processor_config import absolute_path
from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.errors import ConfigurationError

_KAFKA_PREFIX = "kafka."
_CHANNEL_DEFAULTS = ChannelTopics()


class ShareGroupSourceConfig(SparkSinkConfig):
    """Options of a streaming query, but for those of the Kafka cluster, which begin with `kafka.`.

    Micro-batches grow to what the last ones worked off within 2 s, and further, up to 5 s, while that makes a record
    cheaper; slow records shrink them.
    """

    refused: ClassVar[Mapping[str, str]] = {
        **CONSUMER_REFUSED,
        "startingOffsets": "Set share.auto.offset.reset of the group instead: it decides where the group begins.",
        "topics": "Set subscribe instead.",
    }
    refusal: ClassVar[str] = CONSUMER_REFUSAL

    group_id: NonEmpty = Field(description="The share group.")
    subscribe: TopicNames = Field(description="The topics, comma-separated.")
    log_path: str = Field(default="", description="File of the embedded log; none with `kafka.bootstrap.servers`.")
    client_id: str = Field(default="", description="Name of the query in logs.")
    share_acknowledgement_mode: Literal["implicit", "explicit"] = Field(
        default="implicit",
        description="`implicit`: the commit of a batch accepts its records; "
        "`explicit`: `acknowledge` does so for each.",
    )
    sink: str = Field(
        default="",
        description="Delta table, by path, URI, or name in a catalog: `write_once` writes the results of each batch "
        "into it exactly once.",
    )
    acknowledgement_folder: str = Field(
        default="",
        description="Folder for acknowledgements on their way from `foreachBatch` to the query's member, such as a "
        "volume; needed where the two share no temporary folder.",
    )
    share_acquire_mode: AcquireModeName = Field(
        default="batch_optimized",
        description="`batch_optimized`: the last run may exceed `max.poll.records`; `record_limit`: it is cut, and "
        "nothing is fetched during a micro-batch.",
    )
    max_poll_records: Annotated[Int, Field(ge=1)] = Field(
        default=10_000_000,
        description="Most records of a micro-batch, and where it is set, those of the first one; a soft limit with "
        "`batch_optimized`. Where it is not set, the first one has 100, and all have 256 MiB at most.",
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

    @model_validator(mode="after")
    def _check_sink(self) -> Self:
        if self.sink and self.share_acknowledgement_mode == "explicit":
            raise invalid_relation(
                "share.acknowledgement.mode is explicit, and sink is set; acknowledgements are an argument of "
                "`write_once`",
                "share.acknowledgement.mode",
                "sink",
            )
        if self.sink_values and not self.sink:
            key = next(iter(self.sink_values))
            raise invalid_relation(f"{key} is set, and sink is not", key, "sink")
        return self


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a query.

    Attributes:
        log: path or address of the embedded log, or the Kafka cluster.
        config: the other options.
    """

    log: str | KafkaConfig
    config: ShareGroupSourceConfig

    @property
    def is_explicit(self) -> bool:
        """True if the application acknowledges the records."""
        return self.config.share_acknowledgement_mode == "explicit"

    @property
    def acknowledgement_folder(self) -> Path | None:
        """The folder for acknowledgements; None for the temporary one."""
        return Path(self.config.acknowledgement_folder) if self.config.acknowledgement_folder else None

    @property
    def channel_topics(self) -> ChannelTopics:
        """Names of the topics between the member and its processor."""
        return ChannelTopics(
            request_topic_name=self.config.request_topic_name, response_topic_name=self.config.response_topic_name
        )


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse the options of a query; Spark passes their names in lower case.

    Raises:
        ConfigurationError: an option is unknown, refused or missing, a value is not acceptable, or there is no log.
    """
    known_names = (*ShareGroupSourceConfig.key_names(), *ShareGroupSourceConfig.refused)
    spelling = {name.lower(): name for name in known_names}
    source: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for name, value in options.items():
        if name.startswith(_KAFKA_PREFIX):
            kafka[name.removeprefix(_KAFKA_PREFIX)] = value
        else:
            source[spelling.get(name, name)] = value
    config = ShareGroupSourceConfig.from_mapping(source)
    return SourceOptions(_log_address(config.log_path, KafkaConfig.from_mapping(kafka)), config)


def _log_address(path: str, cluster: KafkaConfig) -> str | KafkaConfig:
    if bool(path) != bool(cluster.bootstrap_servers):
        return cluster if cluster.bootstrap_servers else absolute_path(path)
    problem = "are both set" if path else "are both missing"
    raise ConfigurationError(
        f"The options log.path and kafka.bootstrap.servers {problem}.",
        "Set kafka.bootstrap.servers for Kafka, or log.path for the embedded log: a query has one log.",
    )
