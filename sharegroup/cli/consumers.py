"""Consumers of commands: their flags, their configuration, and their errors."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from sharegroup.cli.flags import PROPERTIES_FILE, Command, Site, read_properties
from sharegroup.client.kafka_exceptions import KafkaException
from sharegroup.errors import ConfigurationError, LogError, ShareGroupError

LONGEST_POLL_S = 0.5
"""The longest delay of Ctrl-C while no message comes."""


def consumer_options(command: Command) -> Command:
    """Add the flags of the consumer's configuration, and pass them as `consumer_properties`."""

    @functools.wraps(command)
    def with_properties(*, command_pairs: tuple[str, ...], command_config: Path | None, **others: object) -> object:
        return command(consumer_properties=read_properties(command_config, command_pairs), **others)

    pairs = click.option(
        "--command-property",
        "command_pairs",
        metavar="KEY=VALUE",
        multiple=True,
        help="Configuration of the consumer, over that of the configuration file; repeatable.",
    )
    file = click.option("--command-config", type=PROPERTIES_FILE, help="File of such properties.")
    return pairs(file(with_properties))


def consumer_config(
    site: Site, properties: Mapping[str, str], client_id: str, group: str | None, default_group: str
) -> dict[str, object]:
    """Return the configuration of a command's consumer.

    Args:
        properties: those of the flags.
        client_id: the client id, unless it is configured.
        group: the group of the flag; None without one.
        default_group: the group where none is named or configured.

    Raises:
        ConfigurationError: the flag and the properties name different groups.
    """
    if group is not None and properties.get("group.id", group) != group:
        raise ConfigurationError(
            f"The group ids {group!r} of --group and {properties['group.id']!r} of the consumer's properties differ.",
            "Give one of them.",
        )
    config: dict[str, object] = {"client.id": client_id, "group.id": default_group, **site.settings.consumer}
    config |= properties
    if group is not None:
        config["group.id"] = group
    return config | site.settings.channel_properties


def check_topics(site: Site, topic: str) -> None:
    """Warn of a missing topic, and raise `UnknownTopicError` without a processor: the consumer would wait for it."""
    with site.open_log() as opened:
        opened.describe_topic(site.channel_topics.request_topic_name)
        if topic not in (known.name for known in opened.topics()):
            click.echo(f"warning: there is no topic {topic} yet.", err=True)


@contextmanager
def as_share_group_error() -> Iterator[None]:
    """Raise the consumer's errors as those of this package."""
    try:
        yield
    except KafkaException as error:
        if isinstance(error.__cause__, ShareGroupError):
            raise error.__cause__ from None
        raise LogError(error.args[0].str()) from error
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
