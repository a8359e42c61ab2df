"""`sharegroup quickstart`: a share group from its first record to the account of all of them, in one process.

1. A new project, a topic with orders, and a processor that Spark does not host.
2. Two members in Python take half of the orders.
3. A worker of Spark takes the rest. Without Java or PySpark the rest stays available.
4. The state table says what happened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import click
from rich.table import Table

from sharegroup.audit.history.group_history import GroupHistory, group_history
from sharegroup.audit.verification.verify_table import verify_table
from sharegroup.cli.flags import DEFAULT_CONFIG
from sharegroup.cli.output import print_text, table
from sharegroup.client.message import Message
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.loader import Settings, load_settings
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.environment import claim_folder
from sharegroup.errors import EnvironmentNotReadyError
from sharegroup.logs.open import open_log
from sharegroup.logs.port import NewRecord
from sharegroup.processor.thread_host import ThreadHost
from sharegroup.programs.flags import check_spark_installed
from sharegroup.programs.project import NEXT_STEPS, write_project
from sharegroup.state.reader import StateTableReader

TOPIC = GROUP = "orders"
ORDER_COUNT = 300
_PARTITION_COUNT = 3
_PYTHON_SHARE = ORDER_COUNT // 2
_PYTHON_MEMBERS = ("python-1", "python-2")
_SPARK_MEMBER = "spark"
_SPARK_WAIT_S = 60.0
_JVM_SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""It lives for a minute, so a compiler that optimises would only take time."""


@click.command("quickstart")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="sharegroup-quickstart",
    show_default=True,
    help="Where all files of the run are.",
)
def quickstart(folder: Path) -> None:
    """Run a share group for a minute, and show what happened to its records.

    A processor, two members in Python and a worker of Spark share the records of a topic, in a folder that is a project
    of its own afterwards. The first part needs no Java. The first start retrieves the jars of Spark, once. A second
    start in the same folder shows what is there.

    \b
    Example:
      sharegroup quickstart
      sharegroup quickstart --folder demo
    """
    with claim_folder(folder):
        is_new = not (folder / DEFAULT_CONFIG).exists()
        if is_new:
            write_project(folder)
        os.chdir(folder)
        settings = load_settings(DEFAULT_CONFIG, os.environ)
        click.echo(f"{'Everything is in' if is_new else 'There was a quickstart before, in'} {Path.cwd()}")
        if is_new:
            _run(settings)
        _print_account(settings)
        again = "" if is_new else "To start again, delete the folder. "
        click.echo(f"\n{again}Next:\n\n  cd {folder}\n{NEXT_STEPS}")
        click.echo(f"  sharegroup audit lineage --group {GROUP} --topic {TOPIC} --partition 0 --offset 3")


def _run(settings: Settings) -> None:
    # 1. A topic with orders, and a processor.
    _produce(settings)
    click.echo(f"1. {ORDER_COUNT} orders are in topic {TOPIC}, and a processor runs, without Spark")
    with _hosted(settings) as host:
        # 2. Members in Python.
        click.echo(f"2. {' and '.join(_PYTHON_MEMBERS)} take about {_PYTHON_SHARE} orders, without Java")
        _consume(settings, host)
        # 3. A worker of Spark.
        click.echo(f"3. {_SPARK_MEMBER}, a worker, takes the rest")
        try:
            _work(settings)
        except EnvironmentNotReadyError as error:
            click.echo(f"   Left out: {error}")


def _produce(settings: Settings) -> None:
    with open_log(settings.log) as log:
        log.create_topic(TOPIC, _PARTITION_COUNT)
        for number in range(ORDER_COUNT):
            order = {"id": number, "total": None if number % 10 == 0 else 9.5}
            log.append(TOPIC, number % _PARTITION_COUNT, [NewRecord(None, json.dumps(order).encode())])


@contextmanager
def _hosted(settings: Settings) -> Iterator[ThreadHost]:
    """Run a processor beside the block."""
    host = ThreadHost(settings)
    try:
        host.start()
        yield host
    finally:
        host.stop()


def _consume(settings: Settings, host: ThreadHost) -> None:
    """Handle half of the orders with two members, which take turns."""
    properties = {
        **settings.channel_properties,
        "group.id": GROUP,
        "share.acknowledgement.mode": "explicit",
        "share.acquire.mode": "record_limit",
        "max.poll.records": "10",
    }
    count = 0
    with ExitStack() as stack:
        consumers = [stack.enter_context(ShareConsumer({**properties, "client.id": name})) for name in _PYTHON_MEMBERS]
        for consumer in consumers:
            consumer.subscribe([TOPIC])
        while count < _PYTHON_SHARE:
            host.check()
            for consumer in consumers:
                for message in consumer.poll(timeout=0.2):
                    consumer.acknowledge(message, _acknowledge_type(message))
                    count += 1
        for consumer in consumers:
            consumer.commit_sync()


def _acknowledge_type(message: Message) -> AcknowledgeType:
    order = json.loads(cast(bytes, message.value()))
    if order["total"] is None:
        return AcknowledgeType.REJECT
    # Some orders fail the first time.
    fails = order["id"] % 25 == 9 and message.delivery_count() == 1
    return AcknowledgeType.RELEASE if fails else AcknowledgeType.ACCEPT


def _work(settings: Settings) -> None:
    """Handle what is left with a worker of Spark and the handler of the project.

    Raises:
        EnvironmentNotReadyError: PySpark, Java or the jars are missing.
    """
    check_spark_installed()
    from sharegroup.spark.job import load_handler
    from sharegroup.spark.session import build_session
    from sharegroup.spark.worker import process

    spark = build_session("quickstart", _JVM_SETTINGS)
    try:
        config = {**settings.worker, **settings.channel_properties, "client.id": _SPARK_MEMBER}
        process(spark, config, load_handler("handler:handle"), once_timeout_s=_SPARK_WAIT_S)
    finally:
        spark.stop()


def _print_account(settings: Settings) -> None:
    path = settings.processor.state_table_path
    if not StateTableReader(path).exists():
        click.echo("It was interrupted before anything was stored.")
        return
    history = group_history(GROUP, StateTableReader(path).rows())
    accepted, rejected = history.count(RecordState.ACKNOWLEDGED), history.record_count(Cause.REJECT)
    figures = {
        "accepted": accepted,
        "rejected: an order without a total": rejected,
        "released once, and delivered again": history.redelivered_count,
        "not handled yet": ORDER_COUNT - accepted - rejected,
        "findings of audit verify": verify_table(path, settings.broker).finding_count,
    }
    click.echo()
    print_text(table(("ORDERS", "COUNT"), figures.items(), numbers=("COUNT",)), _members(history))


def _members(history: GroupHistory) -> Table:
    acquired, accepted = history.acquired_by_member, history.accepted_by_member
    named = sorted(history.client_ids.items(), key=lambda item: item[1])
    rows = [(name, acquired[member_id], accepted[member_id]) for member_id, name in named]
    return table(("MEMBER", "ACQUIRED", "ACCEPTED"), rows, numbers=("ACQUIRED", "ACCEPTED"))
