"""The part of `sharegroup audit verify` that compares the sinks of members with the state table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from sharegroup.audit.sinks.reconcile import SinkVerification, UndoneOffsets
from sharegroup.cli.audit_findings import finding_document, print_findings
from sharegroup.cli.output import counted, print_text, table

_SHOWN_UNDONE = 20
"""Ranges that a RESTORE has undone and that are shown as text; JSON has all."""


def sinks_document(verification: SinkVerification) -> dict[str, object]:
    """Return the comparison as one JSON object."""
    return {**asdict(verification), "findings": [finding_document(finding) for finding in verification.findings]}


def print_sinks(verification: SinkVerification) -> None:
    """Print the comparison."""
    commits, accepted = (
        counted(verification.commit_count, "commit"),
        counted(verification.accepted_count, "accepted record"),
    )
    sinks = counted(len(verification.sinks), "sink")
    by_record = f", and {counted(verification.row_count, 'row')} by record" if verification.row_count else ""
    print_text(
        f"Compared {commits} of {sinks} with {accepted}{by_record}: {counted(verification.finding_count, 'finding')}.",
        *_notes(verification),
    )
    print_findings(verification.findings, verification.finding_count - len(verification.undone))
    if verification.undone:
        rows = [
            (each.sink, each.commit, each.group_id, f"{each.topic}-{each.partition}", _offsets(each))
            for each in verification.undone[:_SHOWN_UNDONE]
        ]
        print_text(
            "A RESTORE has undone the results of these accepted records: deliver them again, by their offsets.",
            table(("SINK", "COMMIT", "GROUP", "PARTITION", "OFFSETS"), rows, ("COMMIT",)),
        )
    if len(verification.undone) > _SHOWN_UNDONE:
        print_text(f"{counted(len(verification.undone) - _SHOWN_UNDONE, 'more range')}: see --output json.")


def _notes(verification: SinkVerification) -> Iterator[str]:
    yield from (f"Not compared by record: {reason}" for reason in verification.unread_rows)
    if verification.open_count:
        yield f"{counted(verification.open_count, 'write')} are open: nothing is known of their records yet."
    if verification.unchecked_count:
        yield (
            f"{counted(verification.unchecked_count, 'write')} are not compared: the log of the sink or the state "
            "table is cleaned up, or they are of another state table."
        )
    if verification.other_sinks:
        yield f"Sinks of the group's writes that were not named: {', '.join(verification.other_sinks)}."


def _offsets(each: UndoneOffsets) -> str:
    return f"{each.first_offset}-{each.last_offset}"
