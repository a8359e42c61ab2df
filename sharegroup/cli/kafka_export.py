"""`sharegroup audit export`: the state table as the records of Kafka's share groups."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import click

from sharegroup.audit.kafka_state.kafka_records import kafka_records, record_document
from sharegroup.audit.kafka_state.kafka_source import DUMP_FILES
from sharegroup.cli.flags import Site, needs_state_table
from sharegroup.errors import ConfigurationError, GroupIdNotFoundError
from sharegroup.state.reader import StateTableReader


@click.command(short_help="Print the state as Kafka's own records.")
@click.option("--group", "group_id", metavar="GROUP", help="The share group; all groups without it.")
@click.option(
    "--dump",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a dump into this new folder instead, one file for each topic; import-kafka reads it.",
)
@needs_state_table
def export(group_id: str | None, dump: Path | None, site: Site) -> None:
    """Print the records that Kafka would have written, each as a line of JSON.

    They are the states of share-partitions in __share_group_state, and the groups' members, epochs and topics in
    __consumer_offsets. Key and value are there by field, and as the bytes that Kafka writes, in base64.

    \b
    Example:
      sharegroup audit export --group orders
      sharegroup audit export --dump exported
    """
    rows = StateTableReader(site.state_table_path).rows(group_id=group_id)
    if group_id is not None and not rows:
        raise GroupIdNotFoundError(f"Group {group_id} is not in the state table.", "Check its name.")
    records = kafka_records(rows)
    documents = (record_document(record) for record in records)
    if dump is None:
        for document in documents:
            click.echo(_line(document))
        return
    offsets: Counter[str] = Counter()
    with ExitStack() as stack:
        try:
            dump.mkdir(parents=True)
            files = {
                topic: stack.enter_context((dump / name).open("w", encoding="utf-8"))
                for topic, name in DUMP_FILES.items()
            }
        except OSError as error:
            raise ConfigurationError(f"The folder {dump} cannot be made: {error}.", "Name a new folder.") from error
        for document in documents:
            topic = str(document["topic"])
            files[topic].write(f"{_line({'partition': 0, 'offset': offsets[topic], **document})}\n")
            offsets[topic] += 1


def _line(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False)
