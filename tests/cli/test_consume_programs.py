"""`sharegroup consume-perf` and `consume-verifiable`: the flags and the output of Kafka's tools."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.cli.conftest import CommandLine

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
FIGURES = rf"{TIME}, {TIME}, \d+\.\d{{4}}, \d+\.\d{{4}}, \d+\.\d{{4}}, (\d+), \d+"
PERF = ("consume-perf", "--topic", "orders", "--group", "packers")
VERIFIABLE = ("consume-verifiable", "--topic", "orders", "--group-id", "packers")


@pytest.fixture
def orders(log: LocalLog, admin: AdminClient) -> LocalLog:
    """The log, with 20 records in one partition, and a group that begins with the first."""
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(b"k%d" % n, b"v%d" % n) for n in range(20)])
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    return log


def start_offset(cli: CommandLine) -> int:
    """The start offset, once the members have left."""
    (group,) = cli.json("groups", "describe", "--group", "packers")
    assert group["members"] == []
    return int(group["partitions"][0]["start_offset"])


class TestPerf:
    def test_a_line_has_the_figures_of_kafkas_tool(self, cli: CommandLine, orders: LocalLog) -> None:
        flags = ("--num-records", "20", "--show-consumer-stats", "--show-detailed-stats", "--reporting-interval", "1")
        lines = cli.out(*PERF, *flags, "--print-metrics").splitlines()
        assert lines[0] == (
            "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
        )
        assert any(re.fullmatch(rf"{FIGURES} for share consumer 1", line) for line in lines)
        (of_consumer,) = [line for line in lines if line.startswith("Share consumer 1 consumption metrics- ")]
        (total,) = [match for line in lines if (match := re.fullmatch(FIGURES, line))]
        assert total[1] == "20"
        assert of_consumer.endswith(total[0])
        assert "consumer-share-fetch-manager-metrics:records-consumed-total : 20.000" in lines
        assert start_offset(cli) == 20

    def test_several_consumers_share_the_records(self, cli: CommandLine, orders: LocalLog) -> None:
        document: Any = cli.json(*PERF, "--num-records", "20", "--threads", "3", "--hide-header")
        assert (document["topic"], document["group_id"], document["record_count"]) == ("orders", "packers", 20)
        assert len(document["consumers"]) == 3
        assert sum(of_one["record_count"] for of_one in document["consumers"]) == 20
        assert document["mb"] == round(sum(len(f"k{n}v{n}") for n in range(20)) / 1024 / 1024, 4)
        assert start_offset(cli) == 20

    def test_it_ends_when_no_more_records_come(self, cli: CommandLine, orders: LocalLog) -> None:
        result = cli.run(*PERF, "--num-records", "21", "--timeout", "500", "--hide-header")
        assert result.exit_code == 0
        (line,) = result.stdout.splitlines()
        matched = re.fullmatch(FIGURES, line)
        assert matched is not None
        assert matched[1] == "20"
        assert "timeout (500 ms) exceeded" in result.stderr

    def test_two_names_of_the_group(self, cli: CommandLine, orders: LocalLog) -> None:
        flags = ("--num-records", "1", "--command-property", "group.id=porters")
        assert "differ" in cli.error(*PERF, *flags, exit_code=2)


class TestVerifiable:
    @staticmethod
    def events(text: str) -> list[dict[str, Any]]:
        """The events without their times, which come first."""
        events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        assert all(list(event)[:2] == ["timestamp", "name"] for event in events)
        for event in events:
            assert event.pop("timestamp") > 1_000_000_000_000
        return events

    @pytest.mark.parametrize("mode", ["auto", "sync", "async"])
    def test_the_events_are_those_of_kafkas_tool(self, cli: CommandLine, orders: LocalLog, mode: str) -> None:
        flags = ("--max-messages", "20", "--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest")
        text = cli.out(*VERIFIABLE, *flags, "--verbose", "--command-property", "max.poll.records=20")
        orders_0 = {"topic": "orders", "partition": 0}
        offsets = {**orders_0, "count": 20, "offsets": list(range(20))}
        assert self.events(text) == [
            {"name": "startup_complete"},
            {"name": "offset_reset_strategy_set", "offsetResetStrategy": "earliest"},
            *({"name": "record_data", "key": f"k{n}", "value": f"v{n}", **orders_0, "offset": n} for n in range(20)),
            {"name": "records_consumed", "count": 20, "partitions": [offsets]},
            {"name": "offsets_acknowledged", "count": 20, "partitions": [offsets], "success": True},
            {"name": "shutdown_complete"},
        ]
        assert '{"topic":"orders","partition":0,"count":20,"offsets":[0,1,2,' in text
        assert start_offset(cli) == 20

    def test_records_alone_have_no_lines_without_verbose(self, cli: CommandLine, orders: LocalLog) -> None:
        names = [event["name"] for event in self.events(cli.out(*VERIFIABLE, "--max-messages", "5"))]
        assert (names[0], names[-1]) == ("startup_complete", "shutdown_complete")
        assert set(names[1:-1]) == {"records_consumed", "offsets_acknowledged"}

    def test_the_last_event_comes_after_an_error(self, cli: CommandLine, orders: LocalLog) -> None:
        result = cli.run(*VERIFIABLE, "--command-property", "no.such.key=1")
        assert result.exit_code == 2
        assert [event["name"] for event in self.events(result.stdout)] == ["startup_complete", "shutdown_complete"]
        assert "no.such.key" in result.stderr
