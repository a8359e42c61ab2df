"""The page docs/platforms.md: the matrix that tests have proved, one row for each platform, written when it passed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "platforms.md"
_BEGIN, _END = "<!-- matrix: written by make test-platforms -->", "<!-- end of the matrix -->"
_HEADER = "| Platform | Spark | Python | Java | Libraries | Tests passed | Skipped |\n|---|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Row:
    """One run of a platform.

    Attributes:
        platform: its name.
        spark: version of Spark.
        python: version of Python.
        java: version of Java.
        libraries: versions of those that matter.
        passed: number of tests.
        skipped: number of tests.
    """

    platform: str
    spark: str
    python: str
    java: str
    libraries: str
    passed: int
    skipped: int

    def __str__(self) -> str:
        cells = (self.platform, self.spark, self.python, self.java, self.libraries, self.passed, self.skipped)
        return f"| {' | '.join(map(str, cells))} |"


def write_row(row: Row, page: Path = PAGE) -> None:
    """Write or replace the row of a platform; all else on the page stays."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    matrix, _, after = rest.partition(_END)
    rows = {name: line for line in matrix.splitlines() if (name := _name(line))}
    rows[row.platform] = str(row)
    lines = "\n".join([_HEADER, *(rows[name] for name in sorted(rows))])
    page.write_text(f"{before}{_BEGIN}\n{lines}\n{_END}{after}", encoding="utf-8")


def _name(line: str) -> str | None:
    match = re.match(r"\| ([a-z][\w.-]*) \|", line)
    return match[1] if match else None
