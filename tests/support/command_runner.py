"""Runs commands in this process."""

from __future__ import annotations

import inspect

from click.testing import CliRunner


def command_runner() -> CliRunner:
    """Return a runner that keeps the standard error apart, which click before 8.2 does only if asked."""
    is_asked = "mix_stderr" in inspect.signature(CliRunner).parameters
    return CliRunner(**({"mix_stderr": False} if is_asked else {}))
