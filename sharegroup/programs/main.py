"""`sharegroup`: the command line's entry point."""

from __future__ import annotations

import signal
import sys
from typing import Any, NoReturn

import click

from sharegroup.cli.lazy_groups import LazyCommand, LazyGroup
from sharegroup.cli.terminal import Interrupted
from sharegroup.errors import ShareGroupError
from sharegroup.exit_code import ExitCode, exit_code_of
from sharegroup.programs.ending import run_program

_COMMANDS = {
    "quickstart": LazyCommand(
        "sharegroup.programs.quickstart", "quickstart", "Run a share group for a minute, and show what happened."
    ),
    "init": LazyCommand("sharegroup.programs.project", "init", "Write sharegroup.yaml and a handler into a folder."),
    "processor": LazyCommand("sharegroup.programs.processor", "processor", "Run the share groups of a log."),
    "worker": LazyCommand("sharegroup.programs.worker", "worker", "Work as a member of a share group, with Spark."),
    "topics": LazyCommand(
        "sharegroup.cli.topic_commands", "topics", "Create, list, describe and delete topics; produce."
    ),
    "groups": LazyCommand(
        "sharegroup.cli.group_commands", "groups", "List, describe, configure and resume share groups."
    ),
    "audit": LazyCommand("sharegroup.cli.lazy_groups", "audit", "Verify, trace, compare and export the state table."),
    "migrate": LazyCommand("sharegroup.cli.lazy_groups", "migrate", "Move share groups from Kafka to here, and back."),
    "consume": LazyCommand("sharegroup.cli.consume", "consume", "Consume a topic as a member of a share group."),
    "consume-perf": LazyCommand(
        "sharegroup.cli.consume_perf", "consume_perf", "Consume records as fast as possible, and print the rate."
    ),
    "consume-verifiable": LazyCommand(
        "sharegroup.cli.consume_verifiable", "consume_verifiable", "Consume records, and print each event as JSON."
    ),
    "metrics": LazyCommand("sharegroup.cli.metrics", "metrics", "Print the metrics of all share groups."),
    "dashboard": LazyCommand("sharegroup.cli.dashboard", "dashboard", "Serve a page with all groups as they are now."),
    "top": LazyCommand("sharegroup.cli.top", "top", "Watch all share groups live."),
}

_NEED_NUMPY = frozenset(("audit", "processor", "quickstart", "worker"))

_HELP = """Share groups on a log: a processor, members, topics, groups, audits, and a live view.

Settings come from the same places as those of the processor: `--set key=value`, environment variables like
SHAREGROUP_LOG_PATH, and the file that `--config` names; without it sharegroup.yaml in the working folder, if it is
there. `--log` and `--state-table` are short for the two keys that matter most.

\b
Example:
  sharegroup quickstart
  sharegroup topics create --topic orders --partitions 3
  sharegroup groups describe --group orders
"""

_EPILOG = """\b
Exit codes:
  0    done
  1    failed: the error says why
  2    wrong flags or settings
  75   something did not respond or was busy: trying again later may help
  130  interrupted by Ctrl-C (143: by SIGTERM)
"""


class _Program(LazyGroup):
    """The root command, which turns errors of this package into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ShareGroupError as error:
            click.echo(f"error: {' '.join(str(error).split())}", err=True)
            ctx.exit(exit_code_of(error))
        except Interrupted as interrupted:
            ctx.exit(interrupted.exit_code)
        except KeyboardInterrupt:
            ctx.exit(Interrupted(signal.SIGINT).exit_code)
        except BrokenPipeError:
            # The reader of the output has ended.
            sys.stdout = None  # nothing is to be flushed at the end
            ctx.exit(ExitCode.OK)


program = click.version_option(package_name="sharegroup", prog_name="sharegroup")(
    _Program("sharegroup", _HELP, _COMMANDS, _EPILOG)
)


def main() -> NoReturn:
    """Run the command that the arguments name, and end the process."""
    # Arrow loads NumPy where there is one, which is a quarter of the start-up, and only these need it.
    if _NEED_NUMPY.isdisjoint(sys.argv):
        sys.modules["numpy"] = None  # type: ignore[assignment]
    run_program(program, "sharegroup")
