"""`--help` of every command, and what a command imports before it does anything."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from sharegroup.cli.lazy_groups import LazyGroup
from sharegroup.programs.main import program
from tests.cli.conftest import CommandLine

HEAVY = ("delta", "pandas", "py4j", "pyspark", "sharegroup.spark")


def commands(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and all below it, with their names."""
    yield path, command
    if isinstance(command, LazyGroup):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from commands(subcommand, *path, name)


COMMANDS = dict(commands(program))


def test_all_commands_are_there() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "",
        "topics",
        *(
            "topics create",
            "topics list",
            "topics describe",
            "topics produce",
            "topics delete",
            "topics delete-records",
            "topics peek",
            "topics produce-perf",
        ),
        "groups",
        *("groups list", "groups describe", "groups configure", "groups pause", "groups resume"),
        *("groups reset-offsets", "groups delete-offsets", "groups delete", "groups resolve"),
        "audit",
        *("audit verify", "audit export", "audit as-of", "audit diff", "audit lineage", "audit stats", "audit what-if"),
        *("audit import-kafka", "audit redrive", "audit report"),
        "migrate",
        *("migrate from-kafka", "migrate to-kafka"),
        *("consume", "consume-perf", "consume-verifiable"),
        "dashboard",
        "metrics",
        "top",
        *("quickstart", "init", "processor", "worker"),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_the_command_accepts(cli: CommandLine, path: tuple[str, ...]) -> None:
    shown = cli.out(*path, "--help")
    examples = re.findall(r"(?<![`\w])sharegroup (.*)", shown.partition("Example:")[2].replace("\\\n", " "))
    assert examples
    for example in examples:
        # Flags are parsed before help is shown, so that an unknown one fails.
        cli.out(*shlex.split(example), "--help")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_fits_80_columns(cli: CommandLine, path: tuple[str, ...]) -> None:
    shown = cli.out(*path, "--help", columns=80)
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_version(cli: CommandLine) -> None:
    assert re.fullmatch(r"sharegroup, version \d+\.\d+\.\d+\n", cli.out("--version"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("--help", ("rich", "pydantic", "yaml", "pyarrow", "deltalake", "confluent_kafka", *HEAVY)),
        ("topics list", ("pyarrow", "deltalake", "numpy", *HEAVY)),
        ("topics produce --topic orders", ("pyarrow", "deltalake", "numpy", *HEAVY)),
        ("consume --topic orders --timeout-ms 0", ("pyarrow", "deltalake", "numpy", *HEAVY)),
        ("groups list", ("numpy", *HEAVY)),
        ("metrics", ("numpy", *HEAVY)),
        ("top --once", ("numpy", *HEAVY)),
    ],
)
def test_a_command_imports_only_what_it_needs(cli: CommandLine, command: str, unneeded: tuple[str, ...]) -> None:
    cli.out("topics", "create", "--topic", "orders")
    program_text = (
        "import atexit, sys; from sharegroup.programs.main import main\n"
        f"atexit.register(lambda: print([name for name in {unneeded!r} if sys.modules.get(name)], file=sys.stderr))\n"
        "main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program_text, *shlex.split(command)],
        cwd=cli.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert ended.stderr.splitlines()[-1] == b"[]"
