"""`sharegroup consume`: a member of a share group that prints its messages, as kafka-console-share-consumer does."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from sharegroup.cli.consumers import (
    LONGEST_POLL_S,
    as_share_group_error,
    check_topics,
    consumer_config,
    consumer_options,
)
from sharegroup.cli.flags import PROPERTIES_FILE, Command, Site, needs_log, read_properties
from sharegroup.cli.output import JSON, output_option
from sharegroup.cli.record_text import DATA_TYPES, FORMATTER_PROPERTIES, LineFormat, json_line
from sharegroup.cli.terminal import Interruption, has_reader, interruption
from sharegroup.client.message import Message
from sharegroup.client.returning_share_consumer import ReturningShareConsumer
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.errors import ShareGroupError

_DEFAULT_GROUP = "share"
_CLIENT_ID = "console-share-consumer"
_MAX_POLL_RECORDS = "max.poll.records"


def _acknowledgement_options(command: Command) -> Command:
    """Add the flags of the acknowledgement of printed messages, and pass its type as `acknowledge_type`."""

    @functools.wraps(command)
    def with_type(*, reject: bool, release: bool, **others: object) -> object:
        if reject and release:
            raise click.UsageError("At most one of --reject and --release may be specified.")
        by_flag = AcknowledgeType.REJECT if reject else AcknowledgeType.RELEASE
        return command(acknowledge_type=by_flag if reject or release else AcknowledgeType.ACCEPT, **others)

    reject = click.option("--reject", is_flag=True, help="Reject messages as they are consumed.")
    release = click.option("--release", is_flag=True, help="Release messages as they are consumed.")
    return reject(release(with_type))


def _formatter_options(command: Command) -> Command:
    """Add the flags of the form of a printed line, and pass them as `formatter_properties`."""

    @functools.wraps(command)
    def with_properties(
        *,
        formatter_pairs: tuple[str, ...],
        formatter_config: Path | None,
        key_deserializer: str | None,
        value_deserializer: str | None,
        **others: object,
    ) -> object:
        by_flag = {"key.deserializer": key_deserializer, "value.deserializer": value_deserializer}
        named = {key: name for key, name in by_flag.items() if name}
        return command(formatter_properties={**named, **read_properties(formatter_config, formatter_pairs)}, **others)

    pairs = click.option(
        "--formatter-property",
        "formatter_pairs",
        metavar="KEY=VALUE",
        multiple=True,
        help=f"Parts and form of a printed line; repeatable. Keys: {', '.join(FORMATTER_PROPERTIES)}.",
    )
    file = click.option("--formatter-config", type=PROPERTIES_FILE, help="File of such properties.")
    key = click.option("--key-deserializer", metavar="TYPE", help=f"Show keys as this type: {', '.join(DATA_TYPES)}.")
    value = click.option("--value-deserializer", metavar="TYPE", help="Show values as this type.")
    return pairs(file(key(value(with_properties))))


@click.command()
@click.option("--topic", required=True, help="The topic to consume from.")
@click.option("--group", help=f"The share group id of the consumer.  [default: {_DEFAULT_GROUP}]")
@click.option(
    "--max-messages", type=click.IntRange(min=0), help="Messages to consume before exiting; endless if not set."
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=0),
    help="Exit if no message is available for this interval; never if not set.",
)
@_acknowledgement_options
@click.option("--reject-message-on-error", is_flag=True, help="Reject a message that cannot be printed; else halt.")
@_formatter_options
@consumer_options
@needs_log
@output_option
def consume(
    topic: str,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    acknowledge_type: AcknowledgeType,
    reject_message_on_error: bool,
    formatter_properties: Mapping[str, str],
    consumer_properties: Mapping[str, str],
    site: Site,
    output: str,
) -> None:
    """Print the messages of a topic, and accept each; the flags are those of kafka-console-share-consumer.

    A group begins at the end of a topic unless it is configured otherwise:
    `sharegroup groups configure --group G --alter --add-config share.auto.offset.reset=earliest`.
    With `--output json` each message is one line of JSON.

    \b
    Example:
      sharegroup consume --topic orders --group orders --max-messages 10 \\
        --formatter-property print.key=true
    """
    line_of = json_line if output == JSON else LineFormat(formatter_properties).line
    check_topics(site, topic)
    config = _consumer_config(site, group, consumer_properties, max_messages)
    printer = _Printer(line_of, acknowledge_type, reject_message_on_error, max_messages)
    try:
        with interruption() as interrupted, as_share_group_error(), ReturningShareConsumer(config) as consumer:
            consumer.subscribe([topic])
            _run(consumer, printer, timeout_ms, interrupted)
    finally:
        click.echo(f"Processed a total of {printer.message_count} messages", err=True)
    interrupted.check()


@dataclass(slots=True)
class _Printer:
    """A printer of messages, which acknowledges them.

    Attributes:
        line_of: message → its line.
        acknowledge_type: the type for messages that were printed.
        rejects_on_error: True to reject a message that has no line, False to end the command.
        max_messages: messages to print; None is all.
    """

    line_of: Callable[[Message], bytes]
    acknowledge_type: AcknowledgeType
    rejects_on_error: bool
    max_messages: int | None
    message_count: int = 0

    @property
    def is_done(self) -> bool:
        """True if `max_messages` were printed."""
        return self.max_messages is not None and self.message_count >= self.max_messages

    def print_all(self, messages: Sequence[Message], consumer: ReturningShareConsumer) -> None:
        """Print messages, then acknowledge them: those that the reader of the output does not get are returned unread.

        Raises:
            BrokenPipeError: nobody reads the output any more.
            ShareGroupError: a message has no line, and `rejects_on_error` is False.
        """
        lines: list[bytes] = []
        acknowledgements: list[tuple[Message, AcknowledgeType]] = []
        failure: ShareGroupError | None = None
        printed_count = self.message_count
        for index, message in enumerate(messages):
            if self.is_done:
                consumer.return_unread(messages[index:], "beyond --max-messages")
                break
            self.message_count += 1
            try:
                lines.append(self.line_of(message))
                acknowledgements.append((message, self.acknowledge_type))
            except ShareGroupError as error:
                if not self.rejects_on_error:
                    failure = error
                    consumer.return_unread(messages[index + 1 :], "not printed")
                    break
                click.echo(f"error: {error} The message is rejected.", err=True)
                acknowledgements.append((message, AcknowledgeType.REJECT))
        try:
            _write(b"".join(lines))
        except BrokenPipeError:
            self.message_count = printed_count
            consumer.return_unread(messages, "not printed")
            raise
        for message, acknowledge_type in acknowledgements:
            consumer.acknowledge(message, acknowledge_type)
        if failure is not None:
            raise failure


def _run(
    consumer: ReturningShareConsumer, printer: _Printer, timeout_ms: int | None, interrupted: Interruption
) -> None:
    last_message_s = time.monotonic()
    while not (printer.is_done or interrupted.is_requested):
        idle_s = time.monotonic() - last_message_s
        remaining_s = LONGEST_POLL_S if timeout_ms is None else timeout_ms / 1000 - idle_s
        if remaining_s <= 0:
            return
        messages = consumer.poll(timeout=min(remaining_s, LONGEST_POLL_S))
        try:
            if messages:
                last_message_s = time.monotonic()
                printer.print_all(messages, consumer)
            elif not has_reader(sys.stdout):
                # Records that come later would be locked to a program that cannot print them.
                raise BrokenPipeError
        except BrokenPipeError:
            click.echo("Unable to write to standard out, closing consumer.", err=True)
            return


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    try:
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _consumer_config(
    site: Site, group: str | None, properties: Mapping[str, str], max_messages: int | None
) -> dict[str, object]:
    config = consumer_config(site, properties, _CLIENT_ID, group, _DEFAULT_GROUP)
    if max_messages and _MAX_POLL_RECORDS not in config:
        # Messages beyond the last one would be acquired only to be returned.
        config[_MAX_POLL_RECORDS] = min(max_messages, 500)
        config.setdefault("share.acquire.mode", "record_limit")
    return config | {"share.acknowledgement.mode": "explicit"}
