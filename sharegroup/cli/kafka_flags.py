"""Flags that name the state of a Kafka cluster's share groups: a running broker, or a dump."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import click

from sharegroup.audit.kafka_state.kafka_history import KafkaHistory, kafka_history
from sharegroup.audit.kafka_state.kafka_source import broker_records, dump_records, topic_names
from sharegroup.cli.flags import Command, read_properties
from sharegroup.cli.output import shown
from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.open import open_log


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A running Kafka, or the dump of one.

    Attributes:
        dump: the folder of the dump; None for a running Kafka.
    """

    dump: Path | None
    config: KafkaConfig

    @property
    def name(self) -> str:
        """The broker's address, or the folder."""
        return f"Kafka at {self.config.bootstrap_servers}" if self.dump is None else f"dump {self.dump}"

    def history(self) -> tuple[KafkaHistory, dict[str, str]]:
        """Read all records; return them, and topic id → name of the topics that the cluster has now."""
        if self.dump is not None:
            return kafka_history(shown(dump_records(self.dump), "reading")), {}
        with open_log(self.config) as log:
            return kafka_history(shown(broker_records(log), "reading")), topic_names(log)

    def group_config(self, group_id: str) -> dict[str, str] | None:
        """Return the configuration that a group has of its own there; None from a dump, which has none."""
        if self.dump is not None:
            return None
        # Imported here because a dump needs no client of Kafka.
        from sharegroup.logs.kafka_log import KafkaLog

        with KafkaLog(self.config) as log:
            return log.group_config(group_id)


def needs_kafka(command: Command) -> Command:
    """Add the flags of a running Kafka and of a dump to a command, and pass their selection as `source`."""

    @functools.wraps(command)
    def with_source(
        *, bootstrap_server: str | None, command_config: Path | None, dump: Path | None, **others: object
    ) -> object:
        if (bootstrap_server is None) == (dump is None):
            raise click.UsageError("Give either --bootstrap-server or --dump.")
        return command(source=KafkaSource(dump, kafka_config(bootstrap_server or "", command_config)), **others)

    return click.option(
        "--dump",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Folder with the records of the two internal topics as lines of JSON.",
    )(bootstrap_options(with_source))


def bootstrap_options(command: Command) -> Command:
    """Add the flags of a running Kafka, with the names of Kafka's tools."""
    server = click.option(
        "--bootstrap-server", metavar="HOST:PORT", help="A running Kafka, 4.0 or later, from its internal topics."
    )
    config = click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Properties of its clients, as for the processor: security.protocol and others.",
    )
    return server(config(command))


def kafka_config(bootstrap_server: str, command_config: Path | None) -> KafkaConfig:
    """Return the configuration of a cluster's clients.

    Raises:
        ConfigurationError: a property is not known, or its value is wrong.
    """
    properties = {**read_properties(command_config, ()), "bootstrap.servers": bootstrap_server}
    return KafkaConfig.from_mapping(properties)
