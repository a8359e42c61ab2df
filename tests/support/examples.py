"""How many examples hypothesis takes: few in a usual run, many by `--hypothesis-profile=thorough`."""

from __future__ import annotations

from hypothesis import settings

USUAL = 30
THOROUGH = 1_000


def register_profiles() -> None:
    """Make the two profiles, and the usual one the default; examples are chosen anew by each run."""
    # How long an example takes says something about the machine only.
    settings.register_profile("usual", deadline=None, max_examples=USUAL)
    settings.register_profile("thorough", deadline=None, max_examples=THOROUGH)
    settings.load_profile("usual")


def examples(count: int) -> int:
    """This many examples in a usual run, for a test whose examples cost much; in proportion in a thorough one."""
    return max(count * settings().max_examples // USUAL, 1)
