"""The examples of docs/admin.md run as they are printed, in their order."""

from __future__ import annotations

import re
from pathlib import Path
from socket import gethostname

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S

DOCUMENT = (Path(__file__).parents[2] / "docs" / "admin.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)```", DOCUMENT, re.DOTALL | re.MULTILINE)


def test_the_examples(
    log: LocalLog, processor: ProcessorPeer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(log.path.parent)
    AdminClient(log).alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    log.create_topic("orders", 1, {})
    log.append("orders", 0, [NewRecord(None, b"x")] * 30)
    with ShareConsumer({"log.path": str(log.path), "group.id": "packers", "client.id": "anna"}) as anna:
        anna.subscribe(["orders"])
        assert anna.poll(timeout=DEADLINE_S)
        exec(EXAMPLES[0], {})
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[0] == ["packers", "share", "share", "Stable"]
    assert shown[2][1] == "anna"
    assert shown[3] == ["1", gethostname(), "-1"]
    assert shown[4] == ["nobody", "GROUP_ID_NOT_FOUND"]
    assert shown[5] == ["share.delivery.count.limit", "5", "DEFAULT_CONFIG", "True"]
    for example in EXAMPLES[1:]:
        exec(example, {})
    assert capsys.readouterr().out == "orders 0 0 1 30\n"
    assert AdminClient(log).list_groups() == []
