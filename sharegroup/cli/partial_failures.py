"""How a command ends that did a part of what it was asked for."""

from __future__ import annotations

from collections.abc import Mapping

import click

from sharegroup.errors import ApiError, RequestTimedOutError
from sharegroup.exit_code import ExitCode


def end_with_failures(failures: Mapping[str, ApiError | None]) -> None:
    """One line on standard error for each thing that failed, and an exit code that says so; nothing without one.

    Args:
        failures: what it is → why it failed; None where it did not.
    """
    failed = {name: error for name, error in failures.items() if error is not None}
    for name, error in failed.items():
        click.echo(f"error: {name}: {error}", err=True)
    if failed:
        is_silence = any(isinstance(error, RequestTimedOutError) for error in failed.values())
        click.get_current_context().exit(ExitCode.TRY_AGAIN if is_silence else ExitCode.FAILED)
