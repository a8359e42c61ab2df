"""`sharegroup audit verify`."""

from __future__ import annotations

import click

from sharegroup.audit.verify import Verification, verify
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, table
from sharegroup.cli.site import Site, needs_state_table
from sharegroup.exit_code import ExitCode
from sharegroup.state.reader import StateTableReader


@click.command("verify")
@click.option("--group", "group_id", metavar="GROUP", help="Only the rows of this share group, and not the commits.")
@needs_state_table
@output_option
@click.pass_context
def verify_table(ctx: click.Context, group_id: str | None, site: Site, output: str) -> None:
    """Replay the state table, and check every invariant on the way.

    Each commit, transition, start offset and snapshot is checked. The exit code is 1 when something does not add up.
    A group whose dead-letter records cannot be written is reported, too; it is no error of the table.

    \b
    Example:
      sharegroup audit verify
      sharegroup audit verify --group orders --output json
    """
    found = verify(StateTableReader(site.state_table_path).rows(group_id=group_id), site.settings.broker)
    if output == JSON:
        print_json(_document(found))
    else:
        _print(found)
    if found.findings:
        ctx.exit(ExitCode.FAILED)


def _document(found: Verification) -> dict[str, object]:
    return {
        "row_count": found.row_count,
        "transition_count": found.transition_count,
        "findings": [
            {
                "place": finding.place,
                "request_offset": None if finding.request_offset < 0 else finding.request_offset,
                "invariant": finding.violation.invariant,
                "detail": finding.violation.detail,
            }
            for finding in found.findings
        ],
        "degraded": [{"group_id": group_id, "reason": reason} for group_id, reason in sorted(found.degraded.items())],
    }


def _print(found: Verification) -> None:
    print_text(
        f"Replayed {counted(found.row_count, 'row')} with {counted(found.transition_count, 'transition')}: "
        f"{counted(len(found.findings), 'finding')}."
    )
    if found.findings:
        rows = [(finding.place, finding.violation.invariant, finding.violation.detail) for finding in found.findings]
        print_text("", table(("PLACE", "INVARIANT", "DETAIL"), rows))
    for group_id, reason in sorted(found.degraded.items()):
        print_text(f"Group {group_id} has records that wait for their dead letters: {reason}")
