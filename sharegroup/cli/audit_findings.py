"""Findings of a verification, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.audit.verification.findings import Finding
from sharegroup.cli.output import counted, print_text, table


def finding_document(finding: Finding) -> dict[str, object]:
    """Return a finding as one JSON object."""
    return {
        "location": finding.location,
        "request_offset": None if finding.request_offset < 0 else finding.request_offset,
        "invariant": finding.violation.invariant,
        "detail": finding.violation.detail,
    }


def print_findings(findings: Sequence[Finding], count: int) -> None:
    """Print the findings, and how many are left out."""
    if findings:
        cells = [(finding.location, finding.violation.invariant, finding.violation.detail) for finding in findings]
        print_text("", table(("LOCATION", "INVARIANT", "DETAIL"), cells))
    if count > len(findings):
        print_text(f"Only {counted(len(findings), 'finding')} are shown.")
