"""A processor whose state table is on an object store, with the commands beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharegroup.config.table_location import TableLocation
from sharegroup.programs.main import program
from tests.support.site import Site, places

pytestmark = [pytest.mark.slow, pytest.mark.long("an S3 server and Azurite")]


def flags(site: Site, table: TableLocation) -> list[str]:
    options = [f"state.table.storage.{name}={value}" for name, value in table.options.items()]
    pairs = [argument for option in options for argument in ("--set", option)]
    return ["--log", str(site.log_path), "--state-table", str(table), *pairs]


def test_a_processor_moves_to_another_machine_with_nothing_but_the_address(
    table: TableLocation, tmp_path: Path
) -> None:
    first = Site(tmp_path, {"mobile": {"share.auto.offset.reset": "earliest"}}, table=table)
    topic = first.new_topic(record_count=20)
    with first.running():
        with first.consumer("mobile", topic) as consumer:
            taken = places(first.poll(consumer, 5))
            consumer.commit_sync()
        epoch = first.folded("mobile").group_id, first.reader.leader_epoch()
    assert epoch == ("mobile", 1)
    # All that is left of the first machine is the log, which both reach.
    second = Site(tmp_path, table=TableLocation(str(table), table.options), commit_interval_ms=50)
    with second.running():
        with second.consumer("mobile", topic) as consumer:
            rest = places(second.poll(consumer, 20 - len(taken)))
            consumer.commit_sync()
        second.until(lambda: second.is_drained("mobile", topic) or None, "all records are accepted")
        verified = CliRunner().invoke(program, ["audit", "verify", "--output", "json", *flags(second, table)])
        described = CliRunner().invoke(program, ["groups", "list", *flags(second, table)])
    assert not taken & rest
    assert len(taken | rest) == 20
    assert second.reader.leader_epoch() == 2
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)
    assert "mobile" in described.stdout
    first.close()
    second.close()
