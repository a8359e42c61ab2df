"""`sharegroup audit verify`: check that the state table adds up, and that the request log explains it."""

from __future__ import annotations

from pathlib import Path

import click

from sharegroup.audit.replay.request_replay import RequestReplay
from sharegroup.audit.replay.verify_requests import RequestVerification, verify_requests
from sharegroup.audit.sinks.verify_sinks import verify_sinks
from sharegroup.audit.verification.findings import Verification
from sharegroup.cli.audit_findings import finding_document, print_findings
from sharegroup.cli.audit_sinks import print_sinks, sinks_document
from sharegroup.cli.audit_source import rows_of, table_access
from sharegroup.cli.flags import Site, needs_state_table
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, progress_bar
from sharegroup.cli.sink_options import sink_config_option, sink_options
from sharegroup.errors import GroupIdNotFoundError, LogError, StateTableError, UnknownTopicError
from sharegroup.exit_code import ExitCode
from sharegroup.logs.open import open_log


@click.command("verify", short_help="Check that the state table adds up.")
@click.option("--group", "group_id", metavar="GROUP", help="Only the rows of this share group, and not the commits.")
@click.option(
    "--requests/--no-requests",
    "with_requests",
    default=None,
    help="Replay the request log, too. Without the flag it is replayed if the log can be opened, and never with "
    "--group.",
)
@click.option(
    "--sink",
    "sinks",
    metavar="PATH",
    multiple=True,
    help="Compare the writes of members with this Delta table, too; repeatable.",
)
@sink_config_option
@needs_state_table
@output_option
@click.pass_context
def verify_command(
    ctx: click.Context,
    group_id: str | None,
    with_requests: bool | None,
    sinks: tuple[str, ...],
    sink_config: Path | None,
    site: Site,
    output: str,
) -> None:
    """Check the state table against its own history, and against the request log.

    Each data file, commit, transition, start offset and snapshot is checked. Then the requests that are still in the
    request log are applied again, and must give the same rows and responses. The exit code is 1 when something does not
    add up. A group whose dead-letter records cannot be written is reported, too; it is no error of the table.

    With --sink each accepted record must be in a commit of the sink, each commit of a write must have accepted records,
    and no record may be in two. Where the sink has the columns topic, partition and offset, its rows are compared, too.
    Records whose results a RESTORE of the sink has undone are listed.

    The settings must be those of the processor: limits, and names of topics.

    \b
    Example:
      sharegroup audit verify
      sharegroup audit verify --group orders --output json
      sharegroup audit verify --no-requests
      sharegroup audit verify --sink results
    """
    with progress_bar("verify") as progress:
        verification = table_access().verify(site.state_table_path, site.settings.broker, group_id, progress)
    if group_id is not None and not verification.row_count:
        raise GroupIdNotFoundError(f"Group {group_id} is not in the state table.", "Check its name.")
    replay: RequestVerification | None = None
    not_replayed: str | None = None
    if with_requests or (with_requests is None and group_id is None):
        replay, not_replayed = _replayed(site, is_required=bool(with_requests))
    reconciled = verify_sinks(rows_of(site), sinks, group_id, sink_options(sink_config)) if sinks else None
    if output == JSON:
        of_sinks = None if reconciled is None else sinks_document(reconciled)
        print_json({**_document(verification, replay), "requests_error": not_replayed, "sinks": of_sinks})
    else:
        _print(verification, replay)
        if reconciled is not None:
            print_sinks(reconciled)
        if not_replayed is not None:
            print_text(f"The request log was not replayed: {not_replayed}")
    counts = [checked.finding_count for checked in (verification, replay, reconciled) if checked is not None]
    if any(counts):
        ctx.exit(ExitCode.FAILED)


def _replayed(site: Site, is_required: bool) -> tuple[RequestVerification | None, str | None]:
    """Return the result of the replay; or, when nobody asked for it, the reason why there is none."""
    settings = site.settings
    try:
        with open_log(settings.log, must_exist=True) as log, progress_bar("replay") as progress:
            replay = RequestReplay(site.state_table_path, log, settings.processor, settings.broker, progress=progress)
            return verify_requests(replay), None
    except (LogError, UnknownTopicError, StateTableError) as error:
        # Of a table that has lost a file, the findings count: they name it.
        if is_required:
            raise
        return None, str(error)


def _document(verification: Verification, replay: RequestVerification | None) -> dict[str, object]:
    findings = [*verification.findings, *(replay.findings if replay is not None else ())]
    return {
        "row_count": verification.row_count,
        "transition_count": verification.transition_count,
        "segment_count": verification.segment_count,
        "finding_count": verification.finding_count + (replay.finding_count if replay is not None else 0),
        "findings": [finding_document(finding) for finding in findings],
        "degraded": [
            {"group_id": group_id, "reason": reason} for group_id, reason in sorted(verification.degraded.items())
        ],
        "requests": None
        if replay is None
        else {
            "commit_count": replay.commit_count,
            "message_count": replay.message_count,
            "row_count": replay.row_count,
            "response_count": replay.response_count,
            "not_replayed": [
                {
                    "first_commit_id": gap.first_commit_id,
                    "last_commit_id": gap.last_commit_id,
                    "group_id": gap.group_id or None,
                    "reason": gap.reason,
                }
                for gap in replay.gaps
            ],
        },
    }


def _print(verification: Verification, replay: RequestVerification | None) -> None:
    rows, transitions = counted(verification.row_count, "row"), counted(verification.transition_count, "transition")
    print_text(f"Replayed {rows} with {transitions}: {counted(verification.finding_count, 'finding')}.")
    print_findings(verification.findings, verification.finding_count)
    if replay is not None:
        print_text(
            f"Applied {counted(replay.message_count, 'request')} of {counted(replay.commit_count, 'commit')} again, "
            f"and compared {counted(replay.row_count, 'row')} and {counted(replay.response_count, 'response')}: "
            f"{counted(replay.finding_count, 'finding')}."
        )
        print_findings(replay.findings, replay.finding_count)
        for gap in replay.gaps:
            print_text(f"Not replayed: {gap}")
    for group_id, reason in sorted(verification.degraded.items()):
        print_text(f"Group {group_id} has records that wait for their dead-letter records: {reason}")
