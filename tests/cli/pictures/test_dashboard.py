"""`sharegroup dashboard`: its documents, whom it serves, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from sharegroup.cli.pictures.dashboard_server import DashboardServer
from sharegroup.cli.pictures.live_groups import LiveGroups
from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.broker import BrokerConfig
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.state.writer import StateTableWriter
from tests.cli.conftest import CommandLine
from tests.cli.pictures.conftest import GROUP, work
from tests.cli.pictures.page import parsed
from tests.support.eventually import DEADLINE_S, eventually


@contextmanager
def served(cli: CommandLine, log: LocalLog) -> Iterator[str]:
    """The address of a dashboard on the folder's log and table."""
    with DashboardServer(LiveGroups(log, str(cli.folder / "state"), BrokerConfig()), 0) as server:
        yield server.url


def ask(url: str, path: str, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a response."""
    address = urlsplit(url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port or 0)
    connection.putrequest(method, path, skip_host=True)
    if host != "":
        connection.putheader("Host", host or address.netloc)
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), body


def document(url: str, path: str) -> Any:
    status, _, body = ask(url, path)
    assert status == 200, body
    return json.loads(body)


def test_a_group_that_is_watched_at_work(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    with served(cli, log) as url:
        assert document(url, "/groups")["groups"] == []
        work(cli, log, admin)
        version = LiveGroups(log, "state", BrokerConfig()).groups()["version"]
        eventually(lambda: document(url, "/groups")["version"] >= version, "the dashboard has read the last commit")
        watched = document(url, f"/group?id={quote(GROUP)}")
        fresh = LiveGroups(log, "state", BrokerConfig()).group(GROUP)
        for each in (watched, fresh):
            # Rates and times are those of the moment.
            del each["read_ms"], each["rates"], each["version"]
        assert watched == json.loads(json.dumps(fresh)), "commits that are added give the state of a recovery"

        (listed,) = document(url, "/groups")["groups"]
        assert (listed["group_id"], listed["state"], listed["problems"]) == (GROUP, "Empty", [])
        assert listed["lag"] == watched["lag"] == cli.json("groups", "list")[0]["lag"]
        orders, waiting = watched["partitions"]
        assert sum(s["record_count_by_state"].get("WAITING", 0) for s in waiting["segments"]) == 5
        covered = [offset for s in orders["segments"] for offset in range(s["first_offset"], s["last_offset"] + 1)]
        assert covered == list(range(orders["start_offset"], orders["end_offset"])), "from the SPSO to the log end"
        record = document(url, f"/history?group={quote(GROUP)}&topic=orders&partition=0&offset=8")
        assert [(each["cause"], each["to_state"], each["delivery_count"]) for each in record["transitions"]] == [
            ("acquire", "ACQUIRED", 1),
            ("release", "AVAILABLE", 1),
            ("acquire", "ACQUIRED", 2),
            ("release", "ARCHIVED", 2),
        ]
        assert {each["client_id"] for each in record["transitions"]} == {"anna"}


def test_what_a_member_holds_is_in_the_documents(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(None, b"v")] * 20)
    admin.alter_group_config(GROUP, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"})
    config = {"log.path": str(cli.folder / "events.log"), "group.id": GROUP, "client.id": "anna"}
    with served(cli, log) as url, ShareConsumer({**config, "max.poll.records": 5}) as member:
        member.subscribe(["orders"])
        assert member.poll(DEADLINE_S)
        address = f"/group?id={quote(GROUP)}"
        shown = eventually(
            lambda: group if (group := document(url, address))["locks"] else None, "the dashboard shows the locks"
        )
        (anna,) = shown["members"]
        assert (anna["client_id"], anna["assignment"]) == ("anna", [{"topic": "orders", "partitions": [0]}])
        held = [offset for lock in shown["locks"] for offset in range(lock["first_offset"], lock["last_offset"] + 1)]
        assert held == list(range(shown["in_flight_count"])) != []
        assert shown["lock_count"] == len(shown["locks"])
        assert {lock["member_id"] for lock in shown["locks"]} == {anna["member_id"]}
        (orders,) = shown["partitions"]
        in_state = Counter[str]()
        for segment in orders["segments"]:
            in_state.update(segment["record_count_by_state"])
        assert (in_state["ACQUIRED"], sum(in_state.values())) == (len(held), 20)
        (listed,) = document(url, "/groups")["groups"]
        assert listed == {name: shown[name] for name in listed}
        assert ask(url, address)[1]["Content-Type"] == "application/json; charset=utf-8"

        history = f"/history?group={quote(GROUP)}&topic=orders&partition=0"
        (acquired,) = document(url, f"{history}&offset=0")["transitions"]
        assert (acquired["to_state"], acquired["client_id"]) == ("ACQUIRED", "anna")
        never = document(url, f"{history}&offset=99")
        assert (never["offset"], never["transition_count"], never["transitions"]) == (99, 0, [])


def test_the_history_of_an_offset_is_that_of_its_partition(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    log.create_topic("orders", 2)
    log.append("orders", 1, [NewRecord(None, b"v")] * 3)
    admin.alter_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
    with ShareConsumer({"log.path": str(cli.folder / "events.log"), "group.id": GROUP}) as member:
        member.subscribe(["orders"])
        assert eventually(lambda: member.poll(1), "the records come")
    with served(cli, log) as url:
        history = f"/history?group={quote(GROUP)}&topic=orders&offset=0"
        causes = [
            [each["cause"] for each in document(url, f"{history}&partition={partition}")["transitions"]]
            for partition in (0, 1)
        ]
    assert (causes[0], causes[1][:1]) == ([], ["acquire"])


@pytest.fixture
def empty(cli: CommandLine, log: LocalLog) -> CommandLine:
    """A state table without a group."""
    StateTableWriter.open(str(cli.folder / "state"), {})
    return cli


def test_a_browser_that_leaves_during_a_response_prints_nothing(
    empty: CommandLine, log: LocalLog, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(empty, log) as url:
        address = urlsplit(url)
        threads = threading.active_count()
        for _ in range(5):
            with socket.create_connection((address.hostname, address.port or 0)) as browser:
                # The connection is reset, not closed, when it ends with bytes that nobody has read.
                browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                browser.sendall(f"GET /plotly.js HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
                assert browser.recv(15) == b"HTTP/1.1 200 OK"
        eventually(lambda: threading.active_count() <= threads, "the server has ended the connections")
    assert capsys.readouterr().err == ""


def test_it_serves_only_get_and_only_its_own_address(empty: CommandLine, log: LocalLog) -> None:
    with served(empty, log) as url:
        port = urlsplit(url).port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
            assert ask(url, "/groups", host=host)[0] == 200
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1",
            f"127.0.0.1:{port}.evil.example",
            "127.0.0.1:1",
            "",
        ):
            for path in ("/", "/groups", "/plotly.js"):
                status, _, body = ask(url, path, host=host)
                assert (status, list(json.loads(body))) == (403, ["error"]), host
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"):
            status, headers, _ = ask(url, "/groups", method)
            assert (status, headers["Allow"]) == (405, "GET"), method
        assert ask(url, "/../etc/passwd")[0] == 404
        assert ask(url, "/group?id=nobody")[0] == 404
        assert ask(url, "/group")[0] == 400
        for query in ("topic=t&partition=x&offset=0", "topic=t&partition=0&offset=", "topic=t&partition=0", "offset=0"):
            status, _, body = ask(url, f"/history?group=g&{query}")
            assert (status, list(json.loads(body))) == (400, ["error"]), query


def test_the_page_is_accessible_and_loads_nothing_from_elsewhere(empty: CommandLine, log: LocalLog) -> None:
    with served(empty, log) as url:
        status, headers, body = ask(url, "/")
        assert status == 200
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["X-Content-Type-Options"] == "nosniff"
        page = parsed(body.decode())
        loaded = [each.attributes[name] for each in page.all() for name in ("src", "href") if name in each.attributes]
        assert set(loaded) == {"#strips", "/page.css", "data:,", "/plotly.js", "/dashboard.js"}
        for path in ("/page.css", "/plotly.js", "/dashboard.js"):
            assert ask(url, path)[0] == 200
        assert b"http" not in ask(url, "/dashboard.js")[2]
        for figure in page.all("figure"):
            title = figure.one("h3")
            assert figure.attributes["aria-labelledby"] == title.attributes["id"]
            assert figure.one("details").one("table").cells[0], title.text
        for scrolling in (each for each in page.all("div") if each.attributes.get("class") == "scroll"):
            assert scrolling.attributes["tabindex"] == "0"
            assert scrolling.attributes["aria-label"]
        assert page.with_id("history-offset").attributes["type"] == "number"


def test_a_table_that_cannot_be_read_any_more_is_shown_as_it_was(empty: CommandLine, log: LocalLog) -> None:
    groups = LiveGroups(log, "state", BrokerConfig())
    (empty.folder / "state").rename(empty.folder / "moved")
    after = eventually(lambda: groups.groups() if groups.groups()["error"] else None, "the next poll")
    assert "state" in after["error"]
    assert after["groups"] == []


@pytest.mark.slow
def test_documents_of_a_table_that_was_lost(empty: CommandLine, log: LocalLog) -> None:
    with served(empty, log) as url:
        (empty.folder / "state").rename(empty.folder / "moved")
        lost = eventually(lambda: groups if (groups := document(url, "/groups"))["error"] else None, "the next poll")
        assert lost["groups"] == []
        status, _, body = ask(url, "/history?group=g&topic=t&partition=0&offset=0")
        assert (status, list(json.loads(body))) == (503, ["error"])
        (empty.folder / "moved").rename(empty.folder / "state")
        eventually(lambda: not document(url, "/groups")["error"], "the table is read again")


def test_errors_at_its_start(cli: CommandLine, log: LocalLog) -> None:
    assert f"There is no state table at {cli.folder / 'state'}." in cli.error("dashboard", "--port", "0")
    StateTableWriter.open(str(cli.folder / "state"), {})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = cli.error("dashboard", "--port", str(port), exit_code=2)
    assert f"Port {port} of 127.0.0.1 cannot be listened on: Address already in use. Name a free port" in error


def test_without_plotly_the_error_names_the_extra(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharegroup.cli.pictures.drawing.find_spec", lambda name: None)
    assert "pip install 'sharegroup[pictures]'" in cli.error("dashboard", exit_code=2)


@pytest.mark.slow
def test_the_command_serves_documents_without_java_until_ctrl_c(empty: CommandLine) -> None:
    program = "from sharegroup.programs.main import main; main()"
    started = subprocess.Popen(
        [sys.executable, "-c", program, "dashboard", "--port", "0", "--output", "json"],
        cwd=empty.folder,
        env={**os.environ, "PATH": str(empty.folder), "JAVA_HOME": str(empty.folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        written = ""
        while "}" not in written:
            written += started.stdout.read(1)
        url = json.loads(written)["url"]
        assert ask(url, "/")[0] == 200
        assert (document(url, "/groups")["group_count"], document(url, "/groups")["error"]) == (0, "")
        started.send_signal(signal.SIGINT)
        assert started.wait(DEADLINE_S) == 130
    finally:
        started.kill()
        started.wait()
