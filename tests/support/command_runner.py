"""Runs commands in this process."""

from __future__ import annotations

import inspect
from typing import Any

from click.testing import CliRunner


def command_runner() -> CliRunner:
    """Return a runner that keeps the standard error apart, which click before 8.2 does only if asked."""
    options: dict[str, Any] = {"mix_stderr": False}
    is_known = options.keys() <= inspect.signature(CliRunner).parameters.keys()
    return CliRunner(**options if is_known else {})
