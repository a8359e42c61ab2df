"""How a program's process ends."""

from __future__ import annotations

from typing import NoReturn

import click

from sharegroup.exit_code import end_process


def run_program(command: click.Command, name: str | None = None) -> NoReturn:
    """Run a command with the arguments of this process, and end the process with its exit code.

    Args:
        name: of the program, for its help; that of its file by default.
    """
    code = 0
    try:
        command(prog_name=name)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    end_process(code)
