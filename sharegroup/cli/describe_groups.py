"""`sharegroup groups describe`."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import RenderableType

from sharegroup.cli.group_tables import (
    SHOWN_LOCKS,
    document,
    locks_table,
    members_table,
    offsets_table,
    state_table,
    trouble_text,
)
from sharegroup.cli.output import JSON, output_option, print_json, print_text
from sharegroup.cli.site import Site, needs_state_table
from sharegroup.client.group_description import GroupDescription
from sharegroup.client.group_reader import GroupReader


@click.command()
@click.option("--group", "group_ids", metavar="GROUP", multiple=True, help="The share group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All share groups.")
@click.option("--state", is_flag=True, help="Only state and number of members.")
@click.option("--offsets", is_flag=True, help="Only the share-partitions.")
@click.option("--members", is_flag=True, help="Only the members.")
@click.option("--locks", is_flag=True, help="Only the locks, and all of them.")
@click.option("--verbose", is_flag=True, help="Show epochs, and the member ids of locks, too.")
@needs_state_table
@output_option
def describe(
    group_ids: tuple[str, ...],
    all_groups: bool,
    state: bool,
    offsets: bool,
    members: bool,
    locks: bool,
    verbose: bool,
    site: Site,
    output: str,
) -> None:
    """Show a group: state, quarantine, share-partitions, members and the locks that end first.

    START-OFFSET is the share-partition start offset (SPSO), LAG counts records that are not finished, IN-FLIGHT the
    offsets from the SPSO to the last one that was ever acquired, LOCKED the records that a member holds. JSON always
    has everything.

    \b
    Example:
      sharegroup groups describe --group orders
      sharegroup groups describe --all-groups --offsets --output json
    """
    if bool(group_ids) == all_groups:
        raise click.UsageError("Give either --group or --all-groups.")
    chosen = {"state": state, "offsets": offsets, "members": members, "locks": locks}
    if sum(chosen.values()) > 1:
        raise click.UsageError("Give at most one of --state, --offsets, --members and --locks.")
    section = next((name for name, is_chosen in chosen.items() if is_chosen), None)
    with site.open_log() as opened:
        reader = GroupReader(opened, site.state_table_path, site.settings.broker)
        found = reader.groups() if all_groups else [reader.group(group_id) for group_id in group_ids]
    if output == JSON:
        print_json([document(group) for group in found])
    else:
        print_text(*(part for group in found for part in _parts(group, section, verbose)))


def _parts(group: GroupDescription, section: str | None, verbose: bool) -> Iterator[RenderableType]:
    # In the overview the state stands first, and names the group for what follows.
    is_alone = section is not None
    if section in (None, "state"):
        yield state_table(group, verbose)
    yield from trouble_text(group)
    if section in (None, "offsets"):
        yield offsets_table(group, verbose, is_alone)
    if section in (None, "members"):
        yield members_table(group, verbose, is_alone)
    if section == "locks" or (section is None and group.locks):
        yield from locks_table(group, verbose, None if section else SHOWN_LOCKS)
