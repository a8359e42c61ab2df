"""The exit codes of errors."""

from __future__ import annotations

import pytest

from sharegroup.errors import (
    ConfigurationError,
    EnvironmentNotReadyError,
    FencedProcessorError,
    InvalidRequestError,
    LogCorruptedError,
    LogUnavailableError,
    RequestTimedOutError,
    SparkEndedError,
    StateTableError,
)
from sharegroup.exit_code import ExitCode, exit_code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), ExitCode.USAGE),
        (EnvironmentNotReadyError("x"), ExitCode.USAGE),
        (FencedProcessorError("x"), ExitCode.FENCED),
        (StateTableError("x"), ExitCode.FAILED),
        (SparkEndedError("x"), ExitCode.FAILED),
        (LogCorruptedError("x"), ExitCode.FAILED),
        (LogUnavailableError("x"), ExitCode.TRY_AGAIN),
        (RequestTimedOutError("x"), ExitCode.TRY_AGAIN),
        (InvalidRequestError("x"), ExitCode.FAILED),
        (ZeroDivisionError("x"), ExitCode.FAILED),
    ],
)
def test_exit_code_of_an_error(error: Exception, code: ExitCode) -> None:
    assert exit_code_of(error) == code
