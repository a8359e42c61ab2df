"""How programs end: their exit codes."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
from collections.abc import Mapping
from enum import IntEnum
from typing import NoReturn

from sharegroup.errors import (
    ApiError,
    ConfigurationError,
    EnvironmentNotReadyError,
    FencedProcessorError,
    LogUnavailableError,
)

_INDENT = 7
"""Width of the codes in their list."""


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
    """Return all exit codes with their meanings, for `--help`, in lines of at most 78 characters."""
    meanings = {
        **{code.value: meaning for code, meaning in MEANINGS.items()},
        143: "ended by SIGTERM (130: SIGINT) before the start was complete, or at once by a second one",
    }
    wrapped = (textwrap.wrap(meaning, 78 - _INDENT) for meaning in meanings.values())
    lines = [
        f"{'' if index else f'  {code}':<{_INDENT}}{line}"
        for code, part in zip(meanings, wrapped, strict=True)
        for index, line in enumerate(part)
    ]
    return "\n".join(["exit codes:", *lines])


def end_process(code: int) -> NoReturn:
    """End this process, even if the thread of a worker's handler does not end: it would keep the interpreter alive."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
