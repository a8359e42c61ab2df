"""`sharegroup groups delete`."""

from __future__ import annotations

import click

from sharegroup.cli.output import JSON, output_option, print_json, print_text
from sharegroup.cli.partial_failures import end_with_failures
from sharegroup.cli.processor_options import admin_client, timeout_option
from sharegroup.cli.site import Site, needs_log


@click.command("delete")
@click.option("--group", "group_ids", metavar="GROUP", multiple=True, required=True, help="The group; repeatable.")
@timeout_option
@needs_log
@output_option
def delete(group_ids: tuple[str, ...], timeout_ms: int, site: Site, output: str) -> None:
    """Delete groups without members, with their offsets and their configuration; needs a running processor.

    What happened in them stays in the state table for the audit, as long as `audit.retention.ms` says.

    \b
    Example:
      sharegroup groups delete --group orders --group refunds
    """
    with site.open_log() as opened:
        results = admin_client(opened, site).delete_share_groups(group_ids, timeout_ms / 1000)
    if output == JSON:
        print_json([{"group_id": group_id, "error": str(e) if e else None} for group_id, e in results.items()])
    elif deleted := ", ".join(f"'{group_id}'" for group_id, error in results.items() if error is None):
        print_text(f"Deletion of requested share groups ({deleted}) was successful.")
    end_with_failures(results)
