"""Names of files that are names like any other, and that a program may take for something else."""

from __future__ import annotations

UNREADABLE_NAMES = ("a%20b", "a%2Fb", "%41", "a\\b", "a\nb", "a\tb")
"""Names that the Delta library takes for others: percent signs of an encoding, a backslash, line break and tab."""

READABLE_NAMES = ("a b", "a?b", "a#b", "100%", "a%zz", "ä")
"""Names with what a URI has a use for."""

ODD_NAMES = (*UNREADABLE_NAMES, *READABLE_NAMES)
