"""`sharegroup consume-verifiable`: prints its events as the lines of JSON of kafka-verifiable-share-consumer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from sharegroup.cli.consumers import (
    LONGEST_POLL_S,
    as_share_group_error,
    check_topics,
    consumer_config,
    consumer_options,
)
from sharegroup.cli.flags import Site, needs_log
from sharegroup.cli.terminal import Interruption, interruption
from sharegroup.client.kafka_exceptions import KafkaException, TopicPartition
from sharegroup.client.message import Messages
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.log_clock import wall_ms

_CLIENT_ID = "verifiable-share-consumer"
_AUTO, _SYNC, _ASYNC = "auto", "sync", "async"


@click.command("consume-verifiable")
@click.option("--topic", required=True, help="The topic to consume from.")
@click.option("--group-id", required=True, help="The share group id of the consumer.")
@click.option(
    "--max-messages",
    type=click.IntRange(min=-1),
    default=-1,
    show_default=True,
    help="End once so many records are acknowledged; -1 is endless.",
)
@click.option("--verbose", is_flag=True, help="Print each record, too.")
@click.option(
    "--acknowledgement-mode",
    type=click.Choice([_AUTO, _SYNC, _ASYNC], case_sensitive=False),
    default=_AUTO,
    show_default=True,
    help="Accept records with the next poll, or by a commit after each poll.",
)
@click.option(
    "--offset-reset-strategy",
    type=click.Choice(["earliest", "latest"], case_sensitive=False),
    help="Set the group's share.auto.offset.reset first.",
)
@consumer_options
@needs_log
def consume_verifiable(
    topic: str,
    group_id: str,
    max_messages: int,
    verbose: bool,
    acknowledgement_mode: str,
    offset_reset_strategy: str | None,
    consumer_properties: Mapping[str, str],
    site: Site,
) -> None:
    """Consume a topic, accept all records, and print each event as a line of JSON.

    The events are those of kafka-verifiable-share-consumer: `startup_complete`, `offset_reset_strategy_set`,
    `record_data` with --verbose, `records_consumed`, `offsets_acknowledged` and `shutdown_complete`.

    \b
    Example:
      sharegroup consume-verifiable --topic orders --group-id orders \\
        --max-messages 100 --offset-reset-strategy earliest
    """
    check_topics(site, topic)
    config = consumer_config(site, consumer_properties, _CLIENT_ID, None, group_id)
    config |= {"group.id": group_id, "share.acknowledgement.mode": "implicit"}
    _print_event("startup_complete")
    if offset_reset_strategy is not None:
        with site.open_log() as opened:
            site.admin_client(opened).alter_group_config(group_id, {"share.auto.offset.reset": offset_reset_strategy})
        _print_event("offset_reset_strategy_set", offsetResetStrategy=offset_reset_strategy)
    acknowledged = _Acknowledged()
    with interruption() as interrupted, as_share_group_error(), _printed_end(), ShareConsumer(config) as consumer:
        consumer.set_acknowledgement_commit_callback(acknowledged)
        consumer.subscribe([topic])
        _run(consumer, acknowledged, max_messages, acknowledgement_mode, verbose, interrupted)
    interrupted.check()


class _Acknowledged:
    """The callback of acknowledgements: prints them, and counts those that took effect."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, offsets: dict[TopicPartition, set[int]], error: KafkaException | None) -> None:
        count = sum(map(len, offsets.values()))
        partitions = [_partition(p.topic, p.partition, of_partition) for p, of_partition in offsets.items()]
        reason = {} if error is None else {"error": error.args[0].str()}
        _print_event("offsets_acknowledged", count=count, partitions=partitions, **reason, success=error is None)
        self.count += count if error is None else 0


def _run(
    consumer: ShareConsumer,
    acknowledged: _Acknowledged,
    max_messages: int,
    mode: str,
    is_verbose: bool,
    interrupted: Interruption,
) -> None:
    while not interrupted.is_requested and not 0 <= max_messages <= acknowledged.count:
        messages = consumer.poll(LONGEST_POLL_S)
        if not messages:
            continue
        _print_messages(messages, is_verbose)
        if mode == _SYNC:
            consumer.commit_sync()
        elif mode == _ASYNC:
            consumer.commit_async()


def _print_messages(messages: Messages, is_verbose: bool) -> None:
    offsets: dict[tuple[str, int], list[int]] = {}
    for message in messages:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        offsets.setdefault((topic, partition), []).append(offset)
        if is_verbose:
            key, value = _text(message.key()), _text(message.value())
            _print_event("record_data", key=key, value=value, topic=topic, partition=partition, offset=offset)
    partitions = [_partition(topic, partition, each) for (topic, partition), each in offsets.items()]
    _print_event("records_consumed", count=len(messages), partitions=partitions)


def _partition(topic: str, partition: int, offsets: set[int] | list[int]) -> dict[str, object]:
    return {"topic": topic, "partition": partition, "count": len(offsets), "offsets": sorted(offsets)}


def _text(data: object) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else None


@contextmanager
def _printed_end() -> Iterator[None]:
    """Print the last event once the consumer is closed, however it ended."""
    try:
        yield
    finally:
        _print_event("shutdown_complete")


def _print_event(name: str, **fields: object) -> None:
    event = {"timestamp": wall_ms(), "name": name, **fields}
    click.echo(json.dumps(event, separators=(",", ":"), ensure_ascii=False))
