"""`sharegroup audit report`: the structure of the page, its numbers, and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sharegroup.audit.history.group_history import group_history
from sharegroup.core.record_state import Cause
from sharegroup.logs.local import LocalLog
from sharegroup.state.reader import StateTableReader
from tests.cli.conftest import CommandLine
from tests.cli.pictures.conftest import GROUP
from tests.cli.pictures.page import Element, parsed

REPORT = ("audit", "report", "--file", "report.html", "--group")


def page_of(cli: CommandLine, *flags: str) -> Element:
    cli.out(*REPORT, GROUP, *flags)
    return parsed((cli.folder / "report.html").read_text(encoding="utf-8"))


def figures_of(page: Element) -> dict[str, Any]:
    """Title → the figure that plotly.js draws."""
    figures = json.loads(page.with_id("figures").text)
    titles = [figure.one("h3").text for figure in page.all("figure")]
    return dict(zip(titles, figures, strict=True))


def trace(figure: Any, name: str) -> Any:
    (named,) = (each for each in figure["data"] if each["name"] == name)
    return named


def test_the_page_is_whole_accessible_and_without_the_network(worked: CommandLine) -> None:
    page = page_of(worked)
    assert GROUP in page.one("title").text
    assert "default-src 'none'" in [meta.attributes.get("content", "")[:18] for meta in page.all("meta")]
    loaded = [element.attributes.get(name) for element in page.all() for name in ("src", "href", "action")]
    assert all(address.startswith("#") for address in loaded if address is not None), loaded
    styles = "".join(style.text for style in page.all("style"))
    assert "prefers-color-scheme: dark" in styles
    assert ":focus-visible" in styles
    assert not re.search(r"url\(|@import", styles)
    own_scripts = page.all("script")[-1].text
    assert "http" not in own_scripts

    figures = page.all("figure")
    assert len(figures) == 2 + 2 * 3
    for figure in figures:
        title = figure.one("h3")
        assert figure.attributes["aria-labelledby"] == title.attributes["id"]
        assert figure.one("figcaption").text
        assert figure.one("details").one("table").cells, title.text
    anchors = {element.attributes.get("id") for element in page.all()}
    assert {address[1:] for address in loaded if address} <= anchors
    for control in page.all("button", "a", "summary"):
        assert control.full_text
        assert control.attributes.get("tabindex") is None, "it is reached in its turn"
    scrolling = [element for element in page.all() if element.attributes.get("class") == "scroll"]
    assert {element.attributes.get("tabindex") for element in scrolling} == {"0"}, "tables scroll by keyboard, too"
    assert "Nothing to draw" in figures[-1].full_text, "nothing of orders-1 was ever delivered"
    for figure in json.loads(page.with_id("figures").text):
        assert figure["layout"]["xaxis"]["title"]["text"] == "time (UTC)"
        assert figure["layout"]["yaxis"]["title"]["text"] in ("offset", "records", "member")


def test_its_numbers_are_those_of_the_history(worked: CommandLine) -> None:
    page = page_of(worked)
    rows = StateTableReader(str(worked.folder / "state")).rows(group_id=GROUP)
    history = {each.partition: each for each in group_history(GROUP, rows).partitions.values()}[0]
    causes = history.record_count_by_cause
    entries = [entry for row in rows for entry in row.transitions]
    again = [entry.transition.size for entry in entries if entry.cause is Cause.ACQUIRE and entry.delivery_count > 1]
    titles, *cells = page.with_id("summary").one("table").cells
    orders = dict(zip(titles, next(row for row in cells if row[0] == "orders-0"), strict=True))
    assert orders == {
        "Share-partition": "orders-0",
        "SPSO": str(history.start_offset),
        "In flight": str(worked.json("groups", "list")[0]["in_flight_count"]),
        "Acquired": str(causes[Cause.ACQUIRE]),
        "Accepted": str(causes[Cause.ACCEPT]),
        "Acquired again": str(sum(again)),
        "Rejected": "1",
        "Archived at the limit": str(history.archived_at_limit_count),
        "Lock timed out": "0",
    }
    assert history.archived_at_limit_count == 1
    _, worst, *_ = page.with_id("redelivered").one("table").cells
    assert worst[:6] == ["orders-0", "8", "1", "2", "ARCHIVED, at the limit", "released"]
    assert worst[6].startswith("anna (")

    figures = figures_of(page)
    offsets = figures["Offsets of orders-0"]
    assert trace(offsets, "start offset (SPSO)")["y"][-1] == history.start_offset
    assert trace(offsets, "log end")["y"][-1] == 20
    lag = trace(figures["Lag"], "orders-0")["y"]
    assert lag[-1] == 20 - history.start_offset
    counts = figures["Delivery counts of orders-0"]["data"][0]["z"]
    assert max(count for row in counts for count in row if count) == history.highest_delivery_count == 2
    deliveries = page.all("figure")[4].one("table").cells[1:]
    assert sum(int(records) for _, records in deliveries) == causes[Cause.ACQUIRE]
    locks = page.all("figure")[1].one("table").cells[1:]
    locked = {row[1]: int(row[3]) for row in locks}
    assert (locked["accepted"], locked["rejected"], locked["released"]) == (causes[Cause.ACCEPT], 1, 3), (
        "each release ends a lock"
    )


def test_one_share_partition_and_a_window(worked: CommandLine) -> None:
    document = worked.json(
        *REPORT, GROUP, "--topic", "orders", "--partition", "0", "--since", "2020-01-01T00:00:00.000"
    )
    assert document["charted_partitions"] == ["orders-0"]
    assert document["size_bytes"] == (worked.folder / "report.html").stat().st_size < 6_000_000
    (note,) = document["notes"]
    assert "earlier times cannot be shown" in note


def test_without_its_log_the_report_says_what_is_missing(worked: CommandLine, log: LocalLog) -> None:
    log.delete_topic("orders")
    page = page_of(worked)
    notes = page.with_id("summary").one("ul").full_text
    assert "Log end and lag are not complete for orders-0" in notes
    assert "no longer in the log" in notes
    assert [each["name"] for each in figures_of(page)["Offsets of orders-0"]["data"]] == [
        "first offset never in flight",
        "start offset (SPSO)",
    ]
    elsewhere = worked.json(*REPORT, GROUP, "--log", "missing.log")
    assert "The log cannot be opened" in elsewhere["notes"][-1]


def test_errors_name_what_can_be_shown(worked: CommandLine) -> None:
    assert "Group nobody is not in the state table." in worked.error(*REPORT, "nobody")
    late = worked.error(*REPORT, GROUP, "--since", "2999-01-01T00:00:00.000", exit_code=2)
    assert "The group has rows from" in late
    assert "has no share-partition of parcels" in worked.error(*REPORT, GROUP, "--topic", "parcels", exit_code=2)
    assert "together" in worked.error(*REPORT, GROUP, "--partition", "0", exit_code=2)
    unwritable = worked.error("audit", "report", "--group", GROUP, "--file", "no/such/folder.html", exit_code=2)
    assert "The file no/such/folder.html cannot be written: No such file or directory." in unwritable
    assert not list(worked.folder.glob("*.html")), "a report that failed leaves no file"


def test_without_plotly_the_error_names_the_extra(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharegroup.cli.pictures.drawing.find_spec", lambda name: None)
    assert "pip install 'sharegroup[pictures]'" in cli.error(*REPORT, GROUP, exit_code=2)
    assert not Path("report.html").exists()
