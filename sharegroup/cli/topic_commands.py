"""`sharegroup topics create`, `list` and `describe`."""

from __future__ import annotations

import click

from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, table
from sharegroup.cli.properties import parse_pairs
from sharegroup.cli.site import Site, needs_log
from sharegroup.logs.port import Log, TopicDescription

_INTERNAL_PREFIX = "__"


@click.command()
@click.option("--topic", required=True, help="The topic's name.")
@click.option("--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Number of partitions.")
@click.option(
    "--topic-config",
    "topic_config",
    metavar="KEY=VALUE",
    multiple=True,
    help="Configuration of the topic, like message.timestamp.type=LogAppendTime; repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing when the topic is there, whatever its partitions.")
@needs_log
@output_option
def create(
    topic: str,
    partitions: int,
    topic_config: tuple[str, ...],
    if_not_exists: bool,
    site: Site,
    output: str,
) -> None:
    """Create a topic; the log, too, when there is none yet.

    \b
    Example:
      sharegroup topics create --topic orders --partitions 3
    """
    with site.open_log(must_exist=False) as opened:
        created = opened.create_topic(topic, partitions, parse_pairs(topic_config), if_not_exists)
        if output == JSON:
            print_json(_document(created))
        else:
            print_text(f"Topic {created.name} has {counted(created.partition_count, 'partition')}.")


@click.command("list")
@click.option("--exclude-internal", is_flag=True, help="Leave out topics whose names begin with __.")
@needs_log
@output_option
def list_topics(exclude_internal: bool, site: Site, output: str) -> None:
    """List all topics.

    \b
    Example:
      sharegroup topics list --exclude-internal
    """
    with site.open_log() as opened:
        found = [
            topic for topic in opened.topics() if not (exclude_internal and topic.name.startswith(_INTERNAL_PREFIX))
        ]
    if output == JSON:
        print_json([_document(topic) for topic in found])
    else:
        rows = [(topic.name, topic.partition_count, topic.topic_id) for topic in found]
        print_text(table(("TOPIC", "#PARTITIONS", "TOPIC-ID"), rows, numbers=["#PARTITIONS"]))


@click.command()
@click.option("--topic", "names", metavar="TOPIC", multiple=True, help="The topic; repeatable. All when left out.")
@needs_log
@output_option
def describe(names: tuple[str, ...], site: Site, output: str) -> None:
    """Show topics with the offsets of their partitions: that of the first record, and that of the next one to come.

    \b
    Example:
      sharegroup topics describe --topic orders
    """
    with site.open_log() as opened:
        found = [opened.describe_topic(name) for name in names] if names else opened.topics()
        partitions = {topic.name: _partitions(opened, topic.name) for topic in found}
    if output == JSON:
        print_json([{**_document(topic), "partitions": partitions[topic.name]} for topic in found])
        return
    rows = [(topic.name, *partition.values()) for topic in found for partition in partitions[topic.name]]
    titles = ("TOPIC", "PARTITION", "START-OFFSET", "END-OFFSET")
    print_text(table(titles, rows, numbers=titles[1:]))


def _document(topic: TopicDescription) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partition_count": topic.partition_count,
        "config": dict(topic.config),
    }


def _partitions(log: Log, topic: str) -> list[dict[str, int]]:
    return [
        {"partition": partition, "start_offset": found.start_offset, "end_offset": found.end_offset}
        for partition, found in sorted(log.offsets(topic).items())
    ]
