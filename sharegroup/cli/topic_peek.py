"""`sharegroup topics peek`: the unfinished records of a group."""

from __future__ import annotations

import itertools

import click

from sharegroup.cli.flags import Site, needs_groups, timeout_option
from sharegroup.cli.group_view import read_groups, relative_time_text
from sharegroup.cli.output import JSON, output_option, print_json, print_text, table
from sharegroup.cli.record_text import as_json
from sharegroup.client.peeked_records import PeekedRecord, PeekState, peek
from sharegroup.logs.log_clock import wall_ms


@click.command("peek")
@click.option("--topic", required=True, help="The topic.")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option(
    "--from-offset", type=click.IntRange(min=0), default=0, show_default=True, help="Only offsets from here on."
)
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in PeekState], case_sensitive=False),
    multiple=True,
    help="Only records in this state; repeatable.",
)
@click.option("--max-messages", type=click.IntRange(min=1), default=10, show_default=True, help="Records to show.")
@timeout_option
@needs_groups
@output_option
def peek_topic(
    topic: str,
    group_id: str,
    partition: int | None,
    from_offset: int,
    states: tuple[str, ...],
    max_messages: int,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Show the unfinished records of a group in a topic without delivering them.

    No lock is taken, and no delivery is counted. A record is available, locked by a member, delayed after its release
    (share.redelivery.backoff.ms), or archiving: it waits for its dead-letter record. UNTIL is the end of a lock, or the
    time when a record becomes available again.

    \b
    Example:
      sharegroup topics peek --topic orders --group packers --state locked
    """
    chosen = [PeekState(state) for state in states] or list(PeekState)
    with site.open_log() as opened:
        group = read_groups(site, opened, timeout_ms, lambda source: source.folded(group_id))
        unfinished = peek(opened, group, site.settings.broker, topic, partition, chosen, from_offset)
        shown = list(itertools.islice(unfinished, max_messages))
    if output == JSON:
        print_json([_record_document(peeked) for peeked in shown])
    elif not shown:
        print_text(f"Group {group_id} has no unfinished records in these states.")
    else:
        titles = ("PARTITION", "OFFSET", "STATE", "DELIVERY", "CLIENT-ID", "UNTIL", "KEY", "VALUE")
        now_ms = wall_ms()
        print_text(table(titles, [_record_row(peeked, now_ms) for peeked in shown], numbers=(*titles[:2], "DELIVERY")))


def _record_row(peeked: PeekedRecord, now_ms: int) -> tuple[object, ...]:
    record = peeked.record
    return (
        record.partition,
        record.offset,
        peeked.state.value,
        peeked.delivery_count,
        peeked.client_id or peeked.member_id or None,
        relative_time_text(peeked.until_ms - now_ms) if peeked.until_ms else None,
        *(None if data is None else data.decode(errors="backslashreplace") for data in (record.key, record.value)),
    )


def _record_document(peeked: PeekedRecord) -> dict[str, object]:
    record = peeked.record
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "state": peeked.state.value,
        "delivery_count": peeked.delivery_count,
        "member_id": peeked.member_id,
        "client_id": peeked.client_id,
        "until_ms": peeked.until_ms or None,
        "key": as_json(record.key),
        "value": as_json(record.value),
        "headers": [[key, as_json(value)] for key, value in record.headers],
    }
