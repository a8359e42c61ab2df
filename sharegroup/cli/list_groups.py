"""`sharegroup groups list`."""

from __future__ import annotations

from pathlib import Path

import click

from sharegroup.cli.group_tables import groups_table, summary
from sharegroup.cli.output import JSON, output_option, print_json, print_text
from sharegroup.cli.site import table_options, table_site
from sharegroup.client.group_description import GroupStateName
from sharegroup.client.group_reader import GroupReader


@click.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in GroupStateName], case_sensitive=False),
    multiple=True,
    help="Only groups in this state; repeatable.",
)
@table_options
@output_option
def list_groups(
    states: tuple[str, ...],
    config: Path | None,
    overrides: tuple[str, ...],
    log: str | None,
    state_table: str | None,
    output: str,
) -> None:
    """List all share groups with their state, members and lag.

    \b
    Example:
      sharegroup groups list --state Stable
    """
    site = table_site(config, overrides, log, state_table)
    with site.open_log() as opened:
        groups = GroupReader(opened, site.state_table_path, site.settings.broker).groups()
    found = [group for group in groups if not states or group.state in states]
    if output == JSON:
        print_json([summary(group) for group in found])
    else:
        print_text(groups_table(found))
