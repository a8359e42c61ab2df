"""`sharegroup groups resolve`: what members with a sink do with writes in doubt, from a terminal or a scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from sharegroup.cli.flags import Site, needs_groups, timeout_option
from sharegroup.cli.group_view import read_groups
from sharegroup.cli.output import JSON, end_with_failures, output_option, print_json, print_text, table
from sharegroup.cli.sink_options import sink_config_option, sink_options
from sharegroup.client.write_decisions import GroupWrite, open_write, open_writes
from sharegroup.errors import InvalidRequestError, ShareGroupError, SinkMissingError, UndecidedWriteError
from sharegroup.logs.port import Log
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from sharegroup.state.fold import FoldedGroup

_WRITTEN, _NOT_WRITTEN = "written", "not-written"

_CONSEQUENCES = {
    _WRITTEN: "Its records are accepted, and never delivered again. Those whose results are not in the sink are lost.",
    _NOT_WRITTEN: "Its records are delivered again. Those whose results are in the sink will be there twice.",
}


@click.command("resolve")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@sink_config_option
@click.option(
    "--older-state", is_flag=True, help="Take over the writes that a copy of the state table lacks; see below."
)
@click.option("--sink", "sinks", metavar="PATH", multiple=True, help="A sink besides those that the group knows.")
@click.option(
    "--accept-unclear", is_flag=True, help="With --older-state: deliver again what no sink can tell any more."
)
@click.option("--dry-run", is_flag=True, help="Only list the open writes.")
@click.option("--write", "version", metavar="WRITE", type=click.IntRange(min=0), help="Decide this write by hand.")
@click.option("--as", "decision", type=click.Choice([_WRITTEN, _NOT_WRITTEN]), help="What it is, with --write.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the audit trail; with --write.")
@click.option(
    "--execute", is_flag=True, help="With --write: decide it. Without the flag only the consequence is shown."
)
@timeout_option
@needs_groups
@output_option
def resolve(
    group_id: str,
    sink_config: Path | None,
    older_state: bool,
    sinks: tuple[str, ...],
    accept_unclear: bool,
    dry_run: bool,
    version: int | None,
    decision: str | None,
    reason: str,
    execute: bool,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Look up the writes of a group that are in doubt, as its members do; needs a running processor.

    A write is in doubt when its locks have ended, or its member gave it up after it began. Each is fenced in its sink,
    so that a late writer is refused, and then looked up: its records are accepted if their results are there, and
    delivered again if not. Writes that members are at work on are left alone. For a group without members run it from a
    scheduler, where the sinks can be read and written.

    With --older-state it prepares a group after the processor was started with --accept-older-state. That copy does not
    know the writes since: they are kept out of the sinks from now on, and what the sinks have of them is taken over.
    Until then the group acquires nothing. Stop its members first. Sinks are those in share.exactly.once.sinks, those of
    open writes, and those of --sink.

    With --write an administrator decides on a write that nobody can look up any more: the sink was dropped, or its
    history is gone. Nothing checks the decision.

    \b
    Example:
      sharegroup groups resolve --group orders
      sharegroup groups resolve --group orders --write 4711 --as not-written \\
        --reason "the sink is gone" --execute
    """
    if (version is None) != (decision is None):
        raise click.UsageError("--write and --as go together.")
    if version is None and (execute or reason):
        raise click.UsageError("--execute and --reason go with --write.")
    if older_state and (version is not None or dry_run):
        raise click.UsageError("--older-state goes without --write and --dry-run.")
    if not older_state and (sinks or accept_unclear):
        raise click.UsageError("--sink and --accept-unclear go with --older-state.")
    with site.open_log() as opened:
        if older_state:
            options = sink_options(sink_config)
            _take_over(site, opened, group_id, sinks, options, timeout_ms, output, accept_unclear=accept_unclear)
            return
        group = read_groups(site, opened, timeout_ms, lambda source: source.folded(group_id))
        if version is not None and decision is not None:
            write = open_write(group, version)
            _decide(site, opened, group_id, write, decision, reason, timeout_ms, output, execute=execute)
            return
        writes = open_writes(group)
        results = {} if dry_run else _resolved(site, opened, group_id, writes, sink_options(sink_config), timeout_ms)
    _show(group_id, writes, results, output)
    end_with_failures({f"write {v}": result for v, result in results.items() if isinstance(result, ShareGroupError)})


def _resolved(
    site: Site, log: Log, group_id: str, writes: list[GroupWrite], options: Mapping[str, str], timeout_ms: int
) -> dict[int, ResolveWriteRequest | ShareGroupError]:
    """Look up and report the writes in doubt; return what their sinks say, or the error."""
    # Only this command needs the client of Delta tables.
    from sharegroup.client.delta_sink import DeltaSink

    admin = site.admin_client(log)
    results: dict[int, ResolveWriteRequest | ShareGroupError] = {}
    for each in writes:
        if not each.needs_lookup:
            continue
        try:
            with DeltaSink(each.write.address, options) as sink:
                resolution = sink.resolve(each.unresolved)
            admin.resolve_write(group_id, resolution, timeout_ms / 1000)
            results[each.write.version] = resolution
        except SinkMissingError:
            results[each.write.version] = _of_no_table(group_id, each)
        except ShareGroupError as error:
            results[each.write.version] = error
    return results


def _take_over(
    site: Site,
    log: Log,
    group_id: str,
    sinks: Iterable[str],
    options: Mapping[str, str],
    timeout_ms: int,
    output: str,
    *,
    accept_unclear: bool,
) -> None:
    from sharegroup.cli.resolve_older_state import OlderStateTakeover

    def read() -> FoldedGroup:
        return read_groups(site, log, timeout_ms, lambda source: source.folded(group_id))

    takeover = OlderStateTakeover(
        log, site.admin_client(log), group_id, read, options, timeout_ms / 1000, accepts_unclear=accept_unclear
    )
    done = takeover.run(sinks)
    if output == JSON:
        fields = {} if done is None else {**done._asdict(), "sinks": [sink._asdict() for sink in done.sinks]}
        print_json({"group_id": group_id, **fields})
    elif done is None:
        print_text(f"Group {group_id} has nothing to take over.")
    else:
        columns = ("SINK", "TABLE-ID", "FENCED-IDS", "WRITES")
        print_text(
            table(columns, done.sinks, numbers=columns[2:]),
            f"{done.resolved_count} open writes were looked up, and {done.partition_count} share-partitions changed. "
            f"Group {group_id} acquires records again.",
        )


def _decide(
    site: Site,
    log: Log,
    group_id: str,
    each: GroupWrite,
    decision: str,
    reason: str,
    timeout_ms: int,
    output: str,
    *,
    execute: bool,
) -> None:
    write = each.write
    if not each.needs_lookup:
        raise InvalidRequestError(
            f"Write {write.version} of {group_id} is not in doubt: {each.locked_count} of its records are locked.",
            "Wait until their locks have ended: their member may still write them.",
        )
    record_count = 0
    if execute:
        resolution = each.decided(is_written=decision == _WRITTEN, reason=reason or "decided by an administrator")
        record_count = site.admin_client(log).resolve_write(group_id, resolution, timeout_ms / 1000)
    if output == JSON:
        fields = {**_fields(each), "decision": decision, "executed": execute, "record_count": record_count}
        print_json({"group_id": group_id, **fields})
        return
    print_text(
        f"Write {write.version} ({write.app_id}) into {write.address}, table {write.table_id}: "
        f"{each.resolving_count} records in doubt. {_CONSEQUENCES[decision]}",
        f"Decided as {decision}: {record_count} records." if execute else "Nothing is decided yet: add --execute.",
    )


def _of_no_table(group_id: str, each: GroupWrite) -> UndecidedWriteError:
    return UndecidedWriteError(
        f"There is no Delta table at {each.write.address} any more, and it may have had the results.",
        f"If it comes back, run this again. If it was dropped, decide by hand: `sharegroup groups resolve --group "
        f"{group_id} --write {each.write.version} --as not-written` delivers the records again, `--as written` accepts "
        "them.",
    )


def _outcome(each: GroupWrite, result: ResolveWriteRequest | ShareGroupError | None) -> str:
    if result is None:
        return "in doubt" if each.needs_lookup else "at work"
    if isinstance(result, ShareGroupError):
        return "UNDECIDED" if isinstance(result, UndecidedWriteError) else "not looked up"
    if result.others is not None:
        return _WRITTEN
    return "written in part" if result.partitions else _NOT_WRITTEN


def _fields(each: GroupWrite) -> dict[str, object]:
    return {
        "write": each.write.version,
        "app_id": each.write.app_id,
        "sink": each.write.address,
        "table_id": each.write.table_id,
        "opened_ms": each.write.opened_ms,
        "resolving_count": each.resolving_count,
        "locked_count": each.locked_count,
    }


def _show(
    group_id: str,
    writes: list[GroupWrite],
    results: Mapping[int, ResolveWriteRequest | ShareGroupError],
    output: str,
) -> None:
    outcomes = {each.write.version: _outcome(each, results.get(each.write.version)) for each in writes}
    if output == JSON:
        print_json([{**_fields(each), "outcome": outcomes[each.write.version]} for each in writes])
    elif not writes:
        print_text(f"Group {group_id} has no open writes.")
    else:
        rows = [
            (each.write.version, each.write.address, each.resolving_count, each.locked_count, outcomes[v])
            for each in writes
            for v in (each.write.version,)
        ]
        columns = ("WRITE", "SINK", "IN-DOUBT", "LOCKED", "OUTCOME")
        print_text(table(columns, rows, numbers=("WRITE", "IN-DOUBT", "LOCKED")))
