"""A group that a real processor has led: all kinds of records are in its table."""

from __future__ import annotations

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.cli.conftest import CommandLine
from tests.support.eventually import DEADLINE_S, eventually

GROUP = "packers </script><b>"
"""Its name must not become markup."""

CONFIG = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "2"}


@pytest.fixture
def worked(cli: CommandLine, log: LocalLog, admin: AdminClient) -> CommandLine:
    """The command line after `work`."""
    work(cli, log, admin)
    return cli


def work(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    """Of 20 records of orders-0, 7 is rejected, 8 archived at the limit of 2, 9 accepted at its second delivery.

    The others are accepted, but for some of the last ones that may be left. Of orders-1 nothing was ever acquired, and
    it has 5 records.
    """
    log.create_topic("orders", 2)
    log.append("orders", 0, [NewRecord(None, b"v")] * 20)
    admin.alter_group_config(GROUP, CONFIG)
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": GROUP,
        "client.id": "anna",
        "max.poll.records": 10,
        "share.acquire.mode": "record_limit",
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(config) as member:
        member.subscribe(["orders"])
        for message in member.poll(DEADLINE_S):
            offset = message.offset() or 0
            kind = AcknowledgeType.REJECT if offset == 7 else AcknowledgeType.ACCEPT
            member.acknowledge(message, AcknowledgeType.RELEASE if offset >= 8 else kind)
        member.commit_sync(DEADLINE_S)
        returned = {8, 9}
        # Records that were read ahead may come before those that were released.
        while returned:
            for message in member.poll(DEADLINE_S):
                kind = AcknowledgeType.RELEASE if message.offset() == 8 else AcknowledgeType.ACCEPT
                member.acknowledge(message, kind)
                returned.discard(message.offset() or 0)
            member.commit_sync(DEADLINE_S)
    log.append("orders", 1, [NewRecord(None, b"v")] * 5)
    eventually(lambda: cli.json("groups", "list")[0]["member_count"] == 0, "the member has left")
