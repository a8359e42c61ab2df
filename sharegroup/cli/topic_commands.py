"""`sharegroup topics`: create, list, describe and delete topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.flags import Site, needs_log, parse_pairs
from sharegroup.cli.lazy_groups import LazyCommand, LazyGroup
from sharegroup.cli.output import JSON, counted, end_with_failures, output_option, print_json, print_text, table
from sharegroup.errors import ConfigurationError, ShareGroupError, UnknownTopicError
from sharegroup.logs.port import Log, TopicDescription

topics = LazyGroup(
    "topics",
    """Topics of the log.

    \b
    Example:
      sharegroup topics create --topic orders --partitions 3
      sharegroup topics produce --topic orders --file orders.txt
    """,
    {
        "peek": LazyCommand("sharegroup.cli.topic_peek", "peek_topic", "Show the unfinished records of a group."),
        "produce": LazyCommand("sharegroup.cli.produce", "produce", "Produce records from a file or a pipe."),
        "produce-perf": LazyCommand("sharegroup.cli.produce_perf", "produce_perf", "Produce records at a rate."),
    },
)


_INTERNAL_PREFIX = "__"


@topics.command(short_help="Create a topic.")
@click.option("--topic", required=True, help="The topic's name.")
@click.option("--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Number of partitions.")
@click.option(
    "--topic-config",
    "topic_config",
    metavar="KEY=VALUE",
    multiple=True,
    help="Configuration of the topic, like message.timestamp.type=LogAppendTime; repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists, whatever its partitions.")
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
    """Create a topic, and the log if there is none.

    Topics of the embedded log have message.timestamp.type, retention.ms, retention.bytes, cleanup.policy=delete,
    max.message.bytes and errors.deadletterqueue.group.enable; other keys are refused. Kafka has its own.

    \b
    Example:
      sharegroup topics create --topic orders --partitions 3
      sharegroup topics create --topic clicks --topic-config retention.ms=86400000
    """
    with site.open_log(must_exist=False) as opened:
        created = opened.create_topic(topic, partitions, parse_pairs(topic_config), if_not_exists)
        if output == JSON:
            print_json(_topic_document(created))
        else:
            print_text(f"Topic {created.name} has {counted(created.partition_count, 'partition')}.")


@topics.command("list", short_help="List all topics.")
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
        shown = [t for t in opened.topics() if not (exclude_internal and t.name.startswith(_INTERNAL_PREFIX))]
    if output == JSON:
        print_json([_topic_document(topic) for topic in shown])
    else:
        rows = [(topic.name, topic.partition_count, topic.topic_id) for topic in shown]
        print_text(table(("TOPIC", "#PARTITIONS", "TOPIC-ID"), rows, numbers=["#PARTITIONS"]))


@topics.command(short_help="Show partitions with their offsets.")
@click.option("--topic", "names", metavar="TOPIC", multiple=True, help="The topic; repeatable. All when left out.")
@needs_log
@output_option
def describe(names: tuple[str, ...], site: Site, output: str) -> None:
    """Show topics with the start and end offsets of their partitions.

    \b
    Example:
      sharegroup topics describe --topic orders
    """
    with site.open_log() as opened:
        shown = [opened.describe_topic(name) for name in names] if names else opened.topics()
        partitions = {topic.name: _partitions(opened, topic.name) for topic in shown}
    if output == JSON:
        print_json([{**_topic_document(topic), "partitions": partitions[topic.name]} for topic in shown])
        return
    rows = [(topic.name, *partition.values()) for topic in shown for partition in partitions[topic.name]]
    titles = ("TOPIC", "PARTITION", "START-OFFSET", "END-OFFSET")
    print_text(table(titles, rows, numbers=titles[1:]))


def _topic_document(topic: TopicDescription) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partition_count": topic.partition_count,
        "config": dict(topic.config),
    }


def _partitions(log: Log, topic: str) -> list[dict[str, int]]:
    return [
        {"partition": partition, "start_offset": offsets.start_offset, "end_offset": offsets.end_offset}
        for partition, offsets in sorted(log.offsets(topic).items())
    ]


_END = -1
"""In kafka-delete-records the offset that stands for the end of the log."""
TopicPartition = tuple[str, int]
"""Name and partition of a topic."""


@topics.command("delete", short_help="Delete topics.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="The topic; repeatable.")
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@needs_log
@output_option
def delete_topics(topics: tuple[str, ...], if_exists: bool, site: Site, output: str) -> None:
    """Delete topics with all their records.

    Groups notice it within seconds, and delete their state of these topics.

    \b
    Example:
      sharegroup topics delete --topic orders
    """
    _check_not_a_channel(site, topics)
    failures: dict[str, ShareGroupError | None] = {}
    deleted = []
    with site.open_log() as opened:
        for topic in dict.fromkeys(topics):
            failures[topic] = None
            try:
                opened.delete_topic(topic)
                deleted.append(topic)
            except UnknownTopicError as error:
                if not if_exists:
                    failures[topic] = error
            except ShareGroupError as error:
                failures[topic] = error
    if output == JSON:
        print_json(
            [
                {"topic": topic, "deleted": topic in deleted, "error": str(error) if error else None}
                for topic, error in failures.items()
            ]
        )
    else:
        print_text(*(f"Deleted topic {topic}." for topic in deleted))
    end_with_failures(failures)


@topics.command("delete-records", short_help="Delete the oldest records of partitions.")
@click.option("--topic", metavar="TOPIC", help="The topic.")
@click.option("--partition", type=click.IntRange(min=0), metavar="PARTITION", help="The partition.")
@click.option(
    "--before-offset", type=click.IntRange(min=_END), metavar="OFFSET", help="The first offset that stays; -1 is none."
)
@click.option(
    "--offset-json-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help='As kafka-delete-records takes it: {"partitions": [{"topic": "orders", "partition": 0, "offset": 100}]}.',
)
@needs_log
@output_option
def delete_records(
    topic: str | None,
    partition: int | None,
    before_offset: int | None,
    offset_json_file: Path | None,
    site: Site,
    output: str,
) -> None:
    """Delete the oldest records of partitions, up to an offset.

    The start offsets of groups follow, so groups that have not finished these records lose them.

    \b
    Example:
      sharegroup topics delete-records --topic orders --partition 0 \\
        --before-offset 100
    """
    flags = (topic, partition, before_offset)
    if offset_json_file is not None and flags == (None, None, None):
        offsets = _read_offsets(offset_json_file)
    elif offset_json_file is None and topic is not None and partition is not None and before_offset is not None:
        offsets = {(topic, partition): before_offset}
    else:
        raise click.UsageError("Give either --topic, --partition and --before-offset, or --offset-json-file.")
    _check_not_a_channel(site, [name for name, _ in offsets])
    start_offsets: dict[TopicPartition, int | None] = {}
    failures: dict[str, ShareGroupError | None] = {}
    with site.open_log() as opened:
        for key, offset in offsets.items():
            start_offsets[key] = failures["{}-{}".format(*key)] = None
            try:
                start_offsets[key] = _delete_records(opened, key, offset)
            except ShareGroupError as error:
                failures["{}-{}".format(*key)] = error
    if output == JSON:
        print_json(
            [
                {"topic": topic, "partition": partition, "start_offset": offset, "error": str(error) if error else None}
                for ((topic, partition), offset), error in zip(start_offsets.items(), failures.values(), strict=True)
            ]
        )
    elif rows := [(*key, offset) for key, offset in start_offsets.items() if offset is not None]:
        titles = ("TOPIC", "PARTITION", "START-OFFSET")
        print_text(table(titles, rows, numbers=titles[1:]))
    end_with_failures(failures)


def _delete_records(log: Log, key: TopicPartition, offset: int) -> int:
    """Delete the records of a partition below an offset, and return its new start offset."""
    topic, partition = key
    # The log refuses a partition that is not there.
    known = log.offsets(topic).get(partition)
    log.delete_records(topic, partition, known.end_offset if known and offset == _END else max(offset, 0))
    return log.offsets(topic)[partition].start_offset


def _read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return (topic, partition) → offset of a file for kafka-delete-records."""
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["partitions"]
        return {(str(entry["topic"]), int(entry["partition"])): int(entry["offset"]) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"The file {path} has no offsets: {error!r}.",
            'Its form is {"partitions": [{"topic": "orders", "partition": 0, "offset": 100}]}.',
        ) from None


def _check_not_a_channel(site: Site, topics: tuple[str, ...] | list[str]) -> None:
    """Refuse the topics between members and the processor, to which the offsets in the state table belong."""
    config = site.settings.processor
    for topic in topics:
        if topic in (config.request_topic_name, config.response_topic_name):
            raise ConfigurationError(
                f"Topic {topic} holds the messages between members and the processor.",
                "jobs/state_maintenance.py deletes those that are old.",
            )
