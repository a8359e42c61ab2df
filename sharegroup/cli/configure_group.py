"""`sharegroup groups configure`."""

from __future__ import annotations

import click

from sharegroup.cli.output import JSON, output_option, print_json, print_text, table
from sharegroup.cli.processor_options import admin_client, timeout_option
from sharegroup.cli.properties import parse_pairs
from sharegroup.cli.site import Site, needs_state_table
from sharegroup.client.group_description import ConfigDescription
from sharegroup.client.group_reader import GroupReader


@click.command()
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group; it need not exist yet.")
@click.option("--alter", is_flag=True, help="Change the group's own keys, all of them or none.")
@click.option("--add-config", metavar="K=V,K=V", multiple=True, help="Keys to set.")
@click.option("--delete-config", metavar="K,K", multiple=True, help="Keys that go back to the default.")
@click.option("--describe", "is_description", is_flag=True, help="Show the keys that the group has set.")
@click.option("--all", "shows_all", is_flag=True, help="With --describe: all keys, as they are in force.")
@timeout_option
@needs_state_table
@output_option
def configure(
    group_id: str,
    alter: bool,
    add_config: tuple[str, ...],
    delete_config: tuple[str, ...],
    is_description: bool,
    shows_all: bool,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Show or change a group's configuration; the flags are those of kafka-configs.

    A change is made by the processor, and needs a running one. All keys are in docs/configuration.md.

    \b
    Example:
      sharegroup groups configure --group orders --alter \\
        --add-config share.auto.offset.reset=earliest,share.delivery.count.limit=3
      sharegroup groups configure --group orders --describe --all
    """
    if alter == is_description:
        raise click.UsageError("Give either --alter or --describe.")
    if alter != bool(add_config or delete_config):
        raise click.UsageError("--alter goes with --add-config, --delete-config, or both.")
    if alter:
        _alter(site, group_id, add_config, delete_config, timeout_ms, output)
    else:
        _describe(site, group_id, shows_all, output)


def _alter(
    site: Site,
    group_id: str,
    add_config: tuple[str, ...],
    delete_config: tuple[str, ...],
    timeout_ms: int,
    output: str,
) -> None:
    changes = parse_pairs(pair for pairs in add_config for pair in _items(pairs))
    deleted = [key for keys in delete_config for key in _items(keys)]
    with site.open_log() as opened:
        admin_client(opened, site).alter_group_config(group_id, changes, deleted, timeout_ms / 1000)
    if output == JSON:
        print_json({"group_id": group_id, "set": changes, "deleted": deleted})
    else:
        print_text(f"Completed updating config for group {group_id}.")


def _describe(site: Site, group_id: str, shows_all: bool, output: str) -> None:
    with site.open_log() as opened:
        group = GroupReader(opened, site.state_table_path, site.settings.broker).group(group_id)
    shown = [entry for entry in group.config if shows_all or entry.own_value is not None]
    if output == JSON:
        print_json(shown)
    elif shown:
        print_text(table(("KEY", "VALUE", "SET BY"), [_row(entry) for entry in shown]))
    else:
        print_text(f"Group {group_id} has set no keys; --all shows what is in force.")


def _items(text: str) -> list[str]:
    """The items between commas; those in square brackets belong to one value, as in kafka-configs."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _row(entry: ConfigDescription) -> tuple[str, str, str]:
    return entry.key, entry.value, "default" if entry.own_value is None else "group"
