"""Open writes and their sinks in the commands on groups and audits, from the rows of a group without a processor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sharegroup.protocol.rows import RecordType, StateRow
from tests.actor.group_harness import Group
from tests.audit.sinks.written_group import WrittenGroup
from tests.audit.worked_site import write_table
from tests.cli.conftest import CommandLine
from tests.cli.pictures.page import parsed

TOPIC_ID = "1KqWsXYTRZm8yb0y3nq7bw"


@pytest.fixture
def written(tmp_path: Path) -> WrittenGroup:
    """Records 0..4 are accepted, 5..9 resolving, 10..14 locked."""
    written = WrittenGroup(tmp_path)
    written.resolve(written.write(written.acquire(), range(5)))
    ben = written.join("ben")
    written.acquire(member=ben)
    ben.close()
    written.acquire()
    return written


@pytest.fixture
def table(cli: CommandLine, written: WrittenGroup) -> Group:
    """The group's rows are in the state table of the folder."""
    with cli.open_log() as log:
        log.create_topic("orders", 1)
    group = written.group
    fence = StateRow(
        record_type=RecordType.FENCE, leader_epoch=1, commit_id=0, payload={"partition_count": 1, "state_id": "s"}
    )
    # Kafka's topic ids are UUIDs.
    rows = [StateRow.model_validate_json(row.model_dump_json().replace("orders-id", TOPIC_ID)) for row in group.rows]
    write_table(cli.folder / "state", [fence, *rows], state_id="s")
    return group


def test_describe_shows_sinks_and_records_that_are_resolving(
    cli: CommandLine, table: Group, written: WrittenGroup
) -> None:
    text = cli.out("groups", "describe", "--group", table.group_id, columns=200)
    assert f"SINK NOT ASKED: 1 write into {written.path}" in " ".join(text.split())
    assert f"sharegroup groups resolve --group {table.group_id}" in " ".join(text.split())
    sinks = next(line.split() for line in text.splitlines() if line.startswith(written.path))
    assert sinks[1:4] == ["2", "1", "5"]
    (document,) = cli.json("groups", "describe", "--group", table.group_id)
    assert (document["resolving_count"], document["partitions"][0]["resolving_count"]) == (5, 5)
    assert [(write["locked_count"], write["is_in_doubt"]) for write in document["open_writes"]] == [
        (0, True),
        (5, False),
    ]


def test_an_export_says_what_it_has_as_available(cli: CommandLine, table: Group) -> None:
    result = cli.run("audit", "export", "--group", table.group_id)
    assert result.exit_code == 0, result.output
    assert "10 records of 2 open writes are AVAILABLE in the export" in " ".join(result.stderr.split())
    assert "RESOLVING" not in result.stdout


def test_a_move_to_kafka_counts_open_writes(cli: CommandLine, table: Group) -> None:
    document = cli.json("migrate", "to-kafka", "--group", table.group_id, "--dry-run")
    assert document["partitions"][0]["open_write_count"] == 2


def test_verify_compares_sinks(cli: CommandLine, table: Group, written: WrittenGroup) -> None:
    result = cli.run("audit", "verify", "--no-requests", "--sink", written.path, "--output", "json")
    sinks = json.loads(result.stdout)["sinks"]
    assert (sinks["sinks"], sinks["accepted_count"], sinks["open_count"]) == ([written.path], 5, 2)
    assert (sinks["finding_count"], sinks["undone"]) == (0, [])
    text = cli.run("audit", "verify", "--no-requests", "--sink", written.path).stdout
    assert "Compared 1 commit of 1 sink with 5 accepted records, and 5 rows by record: 0 findings." in " ".join(
        text.split()
    )


def test_verify_fails_where_a_sink_lacks_a_result(cli: CommandLine, table: Group, written: WrittenGroup) -> None:
    DeltaTable(written.path).restore(0)
    result = cli.run("audit", "verify", "--no-requests", "--sink", written.path)
    assert result.exit_code == 1
    assert "A RESTORE has undone the results of these accepted records" in " ".join(result.stdout.split())
    assert "0-4" in result.stdout


def test_the_report_shows_the_sinks(cli: CommandLine, table: Group, written: WrittenGroup) -> None:
    pytest.importorskip("plotly")
    cli.out("audit", "report", "--group", table.group_id, "--file", "report.html")
    page = parsed((cli.folder / "report.html").read_text(encoding="utf-8"))
    sinks = page.with_id("sinks")
    assert "In this time 5 records were in doubt" in sinks.full_text
    (sink,) = sinks.one("table").cells[1:]
    assert sink[0] == written.path
    assert sink[2:5] == ["2", "1", "5"]
    assert "#sinks" in [anchor.attributes.get("href") for anchor in page.all("a")]
