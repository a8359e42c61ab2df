"""`sharegroup groups delete-offsets`."""

from __future__ import annotations

import click

from sharegroup.cli.output import JSON, output_option, print_json, print_text, table
from sharegroup.cli.partial_failures import end_with_failures
from sharegroup.cli.processor_options import admin_client, timeout_option
from sharegroup.cli.site import Site, needs_log


@click.command("delete-offsets")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group, which must be empty.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="The topic; repeatable.")
@timeout_option
@needs_log
@output_option
def delete_offsets(group_id: str, topics: tuple[str, ...], timeout_ms: int, site: Site, output: str) -> None:
    """Let a group without members forget topics; needs a running processor.

    Members that subscribe to such a topic later begin where `share.auto.offset.reset` says.

    \b
    Example:
      sharegroup groups delete-offsets --group orders --topic refunds
    """
    with site.open_log() as opened:
        results = admin_client(opened, site).delete_share_group_offsets(group_id, topics, timeout_ms / 1000)
    if output == JSON:
        print_json([{"group_id": group_id, "topic": t, "error": str(e) if e else None} for t, e in results.items()])
    else:
        rows = [(topic, f"Error: {error}" if error else "Successful") for topic, error in results.items()]
        print_text(table(("TOPIC", "STATUS"), rows))
    end_with_failures(results)
