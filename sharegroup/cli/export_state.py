"""`sharegroup audit export`."""

from __future__ import annotations

import json

import click

from sharegroup.audit.kafka_records import kafka_records, record_document
from sharegroup.cli.site import Site, needs_state_table
from sharegroup.state.reader import StateTableReader


@click.command("export")
@click.option("--group", "group_id", metavar="GROUP", help="The share group; all groups without it.")
@needs_state_table
def export(group_id: str | None, site: Site) -> None:
    """Print the records that Kafka would have written to __share_group_state, each as a line of JSON.

    Key and value are there by field, and as the bytes that Kafka's share coordinator writes, in base64.

    \b
    Example:
      sharegroup audit export --group orders
    """
    for record in kafka_records(StateTableReader(site.state_table_path).rows(group_id=group_id)):
        click.echo(json.dumps(record_document(record), ensure_ascii=False))
