"""`sharegroup groups`: the commands about share groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click
from rich.console import RenderableType

from sharegroup.cli.flags import (
    PROPERTIES_FILE,
    Site,
    needs_groups,
    needs_log,
    parse_pairs,
    read_properties,
    timeout_option,
)
from sharegroup.cli.group_view import (
    SHOWN_LOCKS,
    GroupSource,
    document,
    groups_table,
    locks_table,
    members_table,
    offsets_table,
    problem_text,
    read_groups,
    sinks_table,
    state_table,
    summary,
)
from sharegroup.cli.lazy_groups import LazyCommand, LazyGroup
from sharegroup.cli.output import JSON, end_with_failures, output_option, print_json, print_text, table
from sharegroup.client.described_groups import GroupDescription
from sharegroup.protocol.group_description import SHARE, GroupStateName

groups = LazyGroup(
    "groups",
    """Share groups.

    `list` and `describe` read the state table: they work while no processor runs, and cost a running one nothing.
    Without a state table they ask the processor, as all commands do that change something.

    \b
    Example:
      sharegroup groups describe --group orders
    """,
    {
        "reset-offsets": LazyCommand(
            "sharegroup.cli.reset_offsets", "reset_offsets", "Set a group's start offsets; a dry run shows them."
        ),
        "resolve": LazyCommand(
            "sharegroup.cli.resolve_writes", "resolve", "Look up the writes of a group that are in doubt."
        ),
    },
)


_TYPES = ("classic", "consumer", SHARE, "streams")


@groups.command("list", short_help="List all groups with their lag.")
@click.option(
    "--state",
    "states",
    metavar="STATE,STATE",
    multiple=True,
    callback=lambda _context, _option, texts: _states(texts),
    help=f"Only groups in these states: {', '.join(GroupStateName)}.",
)
@click.option(
    "--type",
    "types",
    type=click.Choice(_TYPES, case_sensitive=False),
    multiple=True,
    help="Only groups of this type; repeatable. All groups here are share groups.",
)
@timeout_option
@needs_groups
@output_option
def list_groups(
    states: frozenset[GroupStateName],
    types: tuple[str, ...],
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """List all share groups with their state, members and lag.

    \b
    Example:
      sharegroup groups list --state Stable,Paused
    """
    with site.open_log() as opened:
        known = read_groups(site, opened, timeout_ms, lambda source: source.groups())
    shown = [group for group in known if (not states or group.state in states) and (not types or SHARE in types)]
    if output == JSON:
        print_json([summary(group) for group in shown])
    else:
        print_text(groups_table(shown))


def _states(texts: Iterable[str]) -> frozenset[GroupStateName]:
    """Return the states of comma-separated names, in any case, as Kafka's tools take them."""
    by_name = {state.lower(): state for state in GroupStateName}
    names = [name.strip() for text in texts for name in text.split(",")]
    if unknown := [name for name in names if name.lower() not in by_name]:
        raise click.BadParameter(
            f"{unknown[0]!r} is no state of a group; they are {', '.join(GroupStateName)}.", param_hint="--state"
        )
    return frozenset(by_name[name.lower()] for name in names)


@groups.command(short_help="Show state, offsets, members and locks.")
@click.option("--group", "group_ids", metavar="GROUP", multiple=True, help="The share group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All share groups.")
@click.option("--state", is_flag=True, help="Only state and number of members.")
@click.option("--offsets", is_flag=True, help="Only the share-partitions.")
@click.option("--members", is_flag=True, help="Only the members.")
@click.option("--locks", is_flag=True, help="Only the locks, and all of them.")
@click.option("--verbose", is_flag=True, help="Show epochs, and the member ids of locks, too.")
@timeout_option
@needs_groups
@output_option
def describe(
    group_ids: tuple[str, ...],
    all_groups: bool,
    state: bool,
    offsets: bool,
    members: bool,
    locks: bool,
    verbose: bool,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Show a group: state, quarantine, share-partitions, members and the locks that end first.

    START-OFFSET is the share-partition start offset (SPSO), LAG counts records that are not finished, IN-FLIGHT the
    offsets from the SPSO to the last one that was ever acquired, LOCKED the records that a member holds. RESOLVING
    records wait until their sink says whether it has their results. JSON always has everything.

    \b
    Example:
      sharegroup groups describe --group orders
      sharegroup groups describe --all-groups --offsets --output json
    """
    if bool(group_ids) == all_groups:
        raise click.UsageError("Give either --group or --all-groups.")
    flags = {"state": state, "offsets": offsets, "members": members, "locks": locks}
    sections = [name for name, is_set in flags.items() if is_set]
    if len(sections) > 1:
        raise click.UsageError("Give at most one of --state, --offsets, --members and --locks.")

    def read(source: GroupSource) -> list[GroupDescription]:
        return [source.group(group_id) for group_id in group_ids] if group_ids else source.groups()

    with site.open_log() as opened:
        shown = read_groups(site, opened, timeout_ms, read)
    if output == JSON:
        print_json([document(group) for group in shown])
    else:
        section = sections[0] if sections else None
        print_text(*(part for group in shown for part in _parts(group, section, verbose)))


def _parts(group: GroupDescription, section: str | None, verbose: bool) -> Iterator[RenderableType]:
    # In the overview the state stands first, and names the group for what follows.
    is_alone = section is not None
    if section in (None, "state"):
        yield state_table(group, verbose)
    yield from problem_text(group)
    if section in (None, "offsets"):
        yield offsets_table(group, verbose, is_alone)
    if section in (None, "members"):
        yield members_table(group, verbose, is_alone)
    if section == "locks" or (section is None and group.locks):
        yield from locks_table(group, verbose, None if section else SHOWN_LOCKS)
    if section is None and group.sinks:
        yield sinks_table(group)


_OUTER_COMMA = re.compile(r",(?=[^\]]*(?:\[|$))")


@groups.command(short_help="Show or change a group's keys.")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group; it need not exist yet.")
@click.option("--alter", is_flag=True, help="Change the group's own keys, all of them or none.")
@click.option("--add-config", metavar="K=V,K=[V,V]", multiple=True, help="Keys to set.")
@click.option("--add-config-file", metavar="FILE", type=PROPERTIES_FILE, help="File of keys to set, a line K=V each.")
@click.option("--delete-config", metavar="K,K", multiple=True, help="Keys that go back to the default.")
@click.option("--describe", "is_description", is_flag=True, help="Show the keys that the group has set.")
@click.option("--all", "shows_all", is_flag=True, help="With --describe: all keys, as they are in force.")
@timeout_option
@needs_groups
@output_option
def configure(
    group_id: str,
    alter: bool,
    add_config: tuple[str, ...],
    add_config_file: Path | None,
    delete_config: tuple[str, ...],
    is_description: bool,
    shows_all: bool,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Show or change a group's configuration; the flags are those of kafka-configs.

    A change is made by the processor, and needs a running one. All keys are in docs/configuration.md. Of a key that is
    both in the file and in a flag the flag's value counts.

    \b
    Example:
      sharegroup groups configure --group orders --alter \\
        --add-config share.auto.offset.reset=earliest,share.delivery.count.limit=3
      sharegroup groups configure --group orders --describe --all
    """
    if alter == is_description:
        raise click.UsageError("Give either --alter or --describe.")
    if alter != bool(add_config or add_config_file or delete_config):
        raise click.UsageError("--alter goes with --add-config, --add-config-file or --delete-config.")
    if alter:
        pairs = parse_pairs(pair for text in add_config for pair in _items(text))
        changes = read_properties(add_config_file, ()) | {k: _without_brackets(v) for k, v in pairs.items()}
        _alter_config(site, group_id, changes, delete_config, timeout_ms, output)
    else:
        _describe_config(site, group_id, shows_all, timeout_ms, output)


def _alter_config(
    site: Site,
    group_id: str,
    changes: Mapping[str, str],
    delete_config: tuple[str, ...],
    timeout_ms: int,
    output: str,
) -> None:
    deleted = [key for keys in delete_config for key in _items(keys)]
    with site.open_log() as opened:
        site.admin_client(opened).alter_group_config(group_id, changes, deleted, timeout_ms / 1000)
    if output == JSON:
        print_json({"group_id": group_id, "set": dict(changes), "deleted": deleted})
    else:
        print_text(f"Completed updating config for group {group_id}.")


def _describe_config(site: Site, group_id: str, shows_all: bool, timeout_ms: int, output: str) -> None:
    with site.open_log() as opened:
        group = read_groups(site, opened, timeout_ms, lambda source: source.group(group_id))
    shown = [entry for entry in group.config if shows_all or entry.own_value is not None]
    if output == JSON:
        print_json(shown)
    elif shown:
        rows = [(entry.key, entry.value, "default" if entry.own_value is None else "group") for entry in shown]
        print_text(table(("KEY", "VALUE", "SET BY"), rows))
    else:
        print_text(f"Group {group_id} has set no keys; --all shows what is in force.")


def _items(text: str) -> list[str]:
    """Split a text at commas, but not within square brackets, which belong to one value as in kafka-configs."""
    return [item.strip() for item in _OUTER_COMMA.split(text) if item.strip()]


def _without_brackets(value: str) -> str:
    value = value.strip()
    return value[1:-1] if value.startswith("[") and value.endswith("]") else value


@groups.command("delete-offsets", short_help="Delete the state of topics in a group.")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group, which must be empty.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="The topic; repeatable.")
@timeout_option
@needs_log
@output_option
def delete_offsets(group_id: str, topics: tuple[str, ...], timeout_ms: int, site: Site, output: str) -> None:
    """Delete the state of topics in a group without members; needs a running processor.

    A member that subscribes to such a topic later begins at `share.auto.offset.reset`.

    \b
    Example:
      sharegroup groups delete-offsets --group orders --topic refunds
    """
    with site.open_log() as opened:
        results = site.admin_client(opened).delete_share_group_offsets(group_id, topics, timeout_ms / 1000)
    if output == JSON:
        print_json([{"group_id": group_id, "topic": t, "error": str(e) if e else None} for t, e in results.items()])
    else:
        rows = [(topic, f"Error: {error}" if error else "Successful") for topic, error in results.items()]
        print_text(table(("TOPIC", "STATUS"), rows))
    end_with_failures(results)


@groups.command(short_help="Delete groups without members.")
@click.option("--group", "group_ids", metavar="GROUP", multiple=True, help="The group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All groups; those that have members are left, each with an error.")
@timeout_option
@needs_log
@output_option
def delete(group_ids: tuple[str, ...], all_groups: bool, timeout_ms: int, site: Site, output: str) -> None:
    """Delete groups without members, with their offsets and their configuration; needs a running processor.

    Their history stays in the state table for the audit, for `audit.retention.ms`.

    \b
    Example:
      sharegroup groups delete --group orders --group refunds
    """
    if bool(group_ids) == all_groups:
        raise click.UsageError("Give either --group or --all-groups.")
    timeout_s = timeout_ms / 1000
    with site.open_log() as opened:
        admin = site.admin_client(opened)
        named = group_ids or [group.group_id for group in admin.list_groups(timeout=timeout_s)]
        results = admin.delete_share_groups(named, timeout_s)
    if output == JSON:
        print_json([{"group_id": group_id, "error": str(e) if e else None} for group_id, e in results.items()])
    elif deleted := ", ".join(f"'{group_id}'" for group_id, error in results.items() if error is None):
        print_text(f"Deletion of requested share groups ({deleted}) was successful.")
    end_with_failures(results)


@groups.command(short_help="Stop a group from acquiring; locks run on.")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for people; groups describe shows it.")
@timeout_option
@needs_log
@output_option
def pause(group_id: str, reason: str, timeout_ms: int, site: Site, output: str) -> None:
    """Pause a group: its members acquire nothing until it is resumed; needs a running processor.

    Members stay in the group, and their locks run on: they can acknowledge the records that they hold. The pause is
    part of the group's state, so a restart does not end it.

    \b
    Example:
      sharegroup groups pause --group orders --reason "the sink is down"
      sharegroup groups resume --group orders
    """
    with site.open_log() as opened:
        site.admin_client(opened).pause_group(group_id, reason, timeout_ms / 1000)
    if output == JSON:
        print_json({"group_id": group_id, "paused": True})
    else:
        print_text(f"Paused share group {group_id}.")


@groups.command(short_help="Resume a paused or quarantined group.")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@timeout_option
@needs_log
@output_option
def resume(group_id: str, timeout_ms: int, site: Site, output: str) -> None:
    """Resume a paused or quarantined group; needs a running processor.

    A group is quarantined when one of its messages caused an unexpected failure, which `groups describe` shows. The
    message is not applied. If the cause remains, the next such message quarantines the group again.

    \b
    Example:
      sharegroup groups resume --group orders
    """
    with site.open_log() as opened:
        site.admin_client(opened).resume_group(group_id, timeout_ms / 1000)
    if output == JSON:
        print_json({"group_id": group_id, "resumed": True})
    else:
        print_text(f"Resumed share group {group_id}.")
