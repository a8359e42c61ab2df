"""How many examples hypothesis takes: few in a usual run, many by `--hypothesis-profile=thorough`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

USUAL = 30
THOROUGH = 1_000


def register_profiles() -> None:
    """Make the two profiles, and the usual one the default.

    The usual run has the same examples each time, so that it says something about a change; a thorough one looks for
    new ones.
    """
    # How long an example takes says something about the machine only.
    too_slow = [HealthCheck.too_slow]
    settings.register_profile(
        "usual", max_examples=USUAL, deadline=None, derandomize=True, suppress_health_check=too_slow
    )
    settings.register_profile("thorough", max_examples=THOROUGH, deadline=None, suppress_health_check=too_slow)
    settings.load_profile("usual")


def examples(count: int) -> int:
    """This many examples in a usual run, for a test whose examples cost much; in proportion in a thorough one."""
    return max(count * settings().max_examples // USUAL, 1)
