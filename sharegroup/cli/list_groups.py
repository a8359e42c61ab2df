"""`sharegroup groups list`."""

from __future__ import annotations

import click

from sharegroup.cli.group_tables import groups_table, summary
from sharegroup.cli.output import JSON, output_option, print_json, print_text
from sharegroup.cli.site import Site, needs_state_table
from sharegroup.client.group_description import GroupStateName
from sharegroup.client.group_reader import GroupReader

SHARE = "share"
_TYPES = ("classic", "consumer", SHARE, "streams")


@click.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in GroupStateName], case_sensitive=False),
    multiple=True,
    help="Only groups in this state; repeatable.",
)
@click.option(
    "--type",
    "types",
    type=click.Choice(_TYPES, case_sensitive=False),
    multiple=True,
    help="Only groups of this type; repeatable. All groups here are share groups.",
)
@needs_state_table
@output_option
def list_groups(
    states: tuple[str, ...],
    types: tuple[str, ...],
    site: Site,
    output: str,
) -> None:
    """List all share groups with their state, members and lag.

    \b
    Example:
      sharegroup groups list --state Stable
    """
    with site.open_log() as opened:
        groups = GroupReader(opened, site.state_table_path, site.settings.broker).groups()
    found = [group for group in groups if (not states or group.state in states) and (not types or SHARE in types)]
    if output == JSON:
        print_json([summary(group) for group in found])
    else:
        print_text(groups_table(found))
