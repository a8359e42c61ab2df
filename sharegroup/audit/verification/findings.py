"""The result of a verification: its findings, each with the row that shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sharegroup.core.invariants import Violation
from sharegroup.protocol.rows import StateRow

MOST_FINDINGS = 1_000
"""Findings that a verification returns; it counts all of them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation, and the row that shows it.

    Attributes:
        location: group and share-partition, commit, or data file.
        request_offset: the row's message in the request log; -1 when it has none.
    """

    location: str
    violation: Violation
    request_offset: int = -1

    def __str__(self) -> str:
        where = self.location if self.request_offset < 0 else f"{self.location} at request offset {self.request_offset}"
        return f"{where}: {self.violation.invariant}: {self.violation.detail}"


@dataclass
class Verification:
    """The result of `verify`.

    Attributes:
        row_count: rows replayed.
        transition_count: transitions replayed.
        segment_count: pieces between two snapshots that were folded.
        findings: the first `MOST_FINDINGS` violations: of the data files and the commits, then of the groups, by
            location and message; empty when all holds.
        finding_count: number of all violations.
        degraded: group id → reason why its dead-letter records cannot be written; this is no violation.
    """

    row_count: int = 0
    transition_count: int = 0
    segment_count: int = 0
    findings: list[Finding] = field(default_factory=list)
    finding_count: int = 0
    degraded: dict[str, str] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding]) -> None:
        """Add findings; those beyond the bound are only counted."""
        for finding in findings:
            self.finding_count += 1
            if len(self.findings) < MOST_FINDINGS:
                self.findings.append(finding)


def row_finding(row: StateRow, violation: Violation) -> Finding:
    """Return the finding of a group's row."""
    location = f"group {row.group_id} {row.topic}-{row.partition}" if row.topic else f"group {row.group_id}"
    return Finding(location, violation, row.request_offset)


def commit_order(finding: Finding) -> tuple[int, str, str]:
    """Return the sort key of a finding about a commit."""
    return int(finding.location.split(" ")[1]), finding.violation.invariant, finding.violation.detail


def finding_order(finding: Finding) -> tuple[str, int, str, str]:
    """Return the sort key of a finding about groups."""
    return finding.location, finding.request_offset, finding.violation.invariant, finding.violation.detail
