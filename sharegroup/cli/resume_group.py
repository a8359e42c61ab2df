"""`sharegroup groups resume`."""

from __future__ import annotations

import click

from sharegroup.cli.output import JSON, output_option, print_json, print_text
from sharegroup.cli.processor_options import admin_client, timeout_option
from sharegroup.cli.site import Site, needs_log


@click.command()
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@timeout_option
@needs_log
@output_option
def resume(group_id: str, timeout_ms: int, site: Site, output: str) -> None:
    """Resume a quarantined group; needs a running processor.

    A group is quarantined when one of its messages made it fail unexpectedly; `groups describe` says why. The message
    is not applied. If the cause is still there, the next such message quarantines the group again.

    \b
    Example:
      sharegroup groups resume --group orders
    """
    with site.open_log() as opened:
        admin_client(opened, site).resume_group(group_id, timeout_ms / 1000)
    if output == JSON:
        print_json({"group_id": group_id, "resumed": True})
    else:
        print_text(f"Resumed share group {group_id}.")
