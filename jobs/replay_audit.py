"""Answer questions about large histories: the audits of the command line, with rows that Spark reads.

It has the commands, flags and output of `sharegroup audit`, since it runs the same code. Examples:

    spark-submit jobs/replay_audit.py stats --config conf/local.yaml --group orders --output json
    spark-submit jobs/replay_audit.py lineage --config conf/local.yaml --topic orders --partition 0 --offset 17

`spark-submit jobs/replay_audit.py COMMAND --help` shows all flags of a command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from pyspark.sql import SparkSession

from sharegroup.audit.history.row_source import RowSource
from sharegroup.audit.verification.findings import Verification
from sharegroup.audit.verification.verify_table import Progress
from sharegroup.cli.audit_source import TableAccess
from sharegroup.cli.lazy_groups import audit
from sharegroup.config.broker import BrokerConfig
from sharegroup.exit_code import end_process, exit_codes_text
from sharegroup.spark.audit_rows import SparkRows
from sharegroup.spark.job import Job
from sharegroup.spark.verify_by_spark import verify_by_spark

COMMANDS = ("as-of", "lineage", "verify", "diff", "stats", "what-if", "redrive")
"""The commands of `sharegroup audit` that this program has; the last two need no rows from Spark."""


class _Program(click.Group):
    """The audits by name; they are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return audit.get_command(ctx, cmd_name) if cmd_name in COMMANDS else None


program = _Program("replay_audit.py", help=f"\b\n{__doc__}", epilog=f"\b\n{exit_codes_text()}", no_args_is_help=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one audit; the JVM starts when its flags are known to be right."""
    codes: list[int] = []

    def work(job: Job) -> None:
        def open_session() -> SparkSession:
            job.start_jvm()
            return job.session()

        def open_rows(path: str) -> RowSource:
            return SparkRows(open_session, path)

        def verify(path: str, broker: BrokerConfig, group_id: str | None, _: Progress) -> Verification:
            return verify_by_spark(open_session(), path, broker, group_id)

        access = TableAccess(open_rows, verify)
        try:
            arguments = list(sys.argv[1:] if argv is None else argv)
            ended = program.main(arguments, "replay_audit.py", standalone_mode=False, obj=access)
            codes.append(ended if isinstance(ended, int) else 0)
        except click.ClickException as error:
            error.show()
            codes.append(error.exit_code)

    failed = Job("replay-audit", is_verbose=False).run(work)
    return failed or codes[0]


if __name__ == "__main__":
    end_process(main())
