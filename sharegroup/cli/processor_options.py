"""Commands that ask the processor: how long they wait, and by whom they ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from sharegroup.cli.site import Site
from sharegroup.client.admin import AdminClient
from sharegroup.client.settings import ChannelTopics
from sharegroup.logs.port import Log

Command = TypeVar("Command", bound=Callable[..., Any])


def timeout_option(command: Command) -> Command:
    """The flag `--timeout-ms`."""
    return click.option(
        "--timeout-ms",
        type=click.IntRange(min=1),
        default=10_000,
        show_default=True,
        help="How long to wait for the processor's answer.",
    )(command)


def admin_client(log: Log, site: Site) -> AdminClient:
    """The admin client of a site."""
    processor = site.settings.processor
    topics = ChannelTopics(
        request_topic_name=processor.request_topic_name, response_topic_name=processor.response_topic_name
    )
    return AdminClient(log, "sharegroup", topics)
