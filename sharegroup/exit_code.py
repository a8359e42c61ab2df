"""Exit codes of the programs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from sharegroup.errors import (
    ApiError,
    ConfigurationError,
    EnvironmentNotReadyError,
    FencedProcessorError,
    LogUnavailableError,
)


class ExitCode(IntEnum):
    """Result of a program."""

    OK = 0
    FAILED = 1
    USAGE = 2
    FENCED = 3
    TRY_AGAIN = 75


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "ended as asked: by a signal, or with --once because everything was done",
    ExitCode.FAILED: "failed while running",
    ExitCode.USAGE: "wrong flags, configuration or environment; to start it again does not help",
    ExitCode.FENCED: "another processor has taken over; to start it again would fence that one",
    ExitCode.TRY_AGAIN: "something did not respond or was busy; to start it again later may help",
}
"""Exit code → its meaning; 128 + n is the end by signal n, before the start was complete or by a second signal."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of a program that ends with this error."""
    match error:
        case FencedProcessorError():
            return ExitCode.FENCED
        case ConfigurationError() | EnvironmentNotReadyError():
            return ExitCode.USAGE
        case LogUnavailableError():
            return ExitCode.TRY_AGAIN
        case ApiError() if error.retriable:
            return ExitCode.TRY_AGAIN
        case _:
            return ExitCode.FAILED


def exit_codes_text() -> str:
    """Return all exit codes with their meanings, for `--help`."""
    lines = [f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()]
    ended_by_signal = "  143  ended by SIGTERM (130: SIGINT) before the start was complete, or at once by a second one"
    return "\n".join(["exit codes:", *lines, ended_by_signal])
