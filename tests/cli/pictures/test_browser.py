"""Report and dashboard in headless Chromium: charts are drawn, keys work, and nothing is loaded from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.cli.pictures.dashboard_server import DashboardServer
from sharegroup.cli.pictures.live_groups import LiveGroups
from sharegroup.config.broker import BrokerConfig
from sharegroup.logs.local import LocalLog
from tests.cli.conftest import CommandLine
from tests.cli.pictures.conftest import GROUP
from tests.support.chromium import Chromium, Page
from tests.support.eventually import eventually

BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
DRAWN = "[...document.querySelectorAll('.chart')].map((chart) => chart.querySelectorAll('.main-svg').length > 0)"

UNBROKEN = """[...document.querySelectorAll('#redelivered td:nth-child(5)')].map((cell) => {
  const word = document.createRange();
  word.setStart(cell.firstChild, 0);
  word.setEnd(cell.firstChild, cell.textContent.split(' ')[0].length);
  return word.getClientRects().length === 1 ? word.toString() : 'broken';
})"""
"""The first words of the last states, if they are on one line each."""


def background(page: Page) -> Any:
    return page.value("getComputedStyle(document.body).backgroundColor")


def tab_to(page: Page, condition: str) -> None:
    """Press Tab until the element with the focus fulfils a condition."""
    for _ in range(60):
        page.press("Tab")
        if page.value(f"((focused) => {condition})(document.activeElement)"):
            outline = page.value("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", "the focus can be seen"
            return
    raise AssertionError(f"no key leads to: {condition}")


def test_the_report_is_drawn_and_used_by_keyboard(worked: CommandLine, chromium: Chromium) -> None:
    worked.out("audit", "report", "--group", GROUP, "--topic", "orders", "--partition", "0", "--file", "report.html")
    address = (worked.folder / "report.html").as_uri()
    page = drawn_report(chromium, address, "light")
    assert page.value("document.querySelector('h1').textContent") == f"Share group {GROUP}"
    start = "Number(document.getElementById('chart-2').layout.xaxis.range[0])"
    whole = page.value(start)
    tab_to(page, "focused.dataset.zoom === 'in'")
    page.press("Enter")
    eventually(lambda: page.value(start) > whole, "the zoom")
    aligned = "charts.every((chart) => !chart.layout || Number(chart.layout.xaxis.range[0]) === shown[0])"
    eventually(lambda: page.value(aligned), "all charts have the time range of the first")
    tab_to(page, "focused.dataset.zoom === 'all'")
    page.press("Enter")
    eventually(lambda: page.value(start) == whole, "the whole range")
    tab_to(page, "focused.tagName === 'SUMMARY'")
    page.press("Enter")
    assert page.value("document.querySelector('details').open")
    page.value("document.body.style.maxWidth = '30rem'")
    assert page.value(UNBROKEN) == ["ARCHIVED,", "ACKNOWLEDGED"]
    page.value("document.body.style.maxWidth = ''")
    keep(page, "report-light")
    keep(drawn_report(chromium, address, "dark"), "report-dark")


def keep(page: Page, name: str) -> None:
    page.keep_screenshot(name)
    assert page.errors == []
    assert [url for url in page.requested_urls if not url.startswith(("file:", "data:", "blob:"))] == []


def drawn_report(chromium: Chromium, address: str, scheme: str) -> Page:
    page = chromium.open(address, scheme)
    assert eventually(lambda: page.value("document.body?.dataset.drawn"), "charts") == "5"
    assert all(page.value(DRAWN))
    assert background(page) == BACKGROUNDS[scheme]
    plot = page.value("getComputedStyle(document.querySelector('.main-svg')).backgroundColor")
    assert plot == BACKGROUNDS[scheme], "charts have the colours of the page"
    return page


@pytest.mark.parametrize("scheme", BACKGROUNDS)
def test_the_dashboard_is_drawn_and_used_by_keyboard(
    worked: CommandLine, log: LocalLog, chromium: Chromium, scheme: str
) -> None:
    groups = LiveGroups(log, str(worked.folder / "state"), BrokerConfig())
    with DashboardServer(groups, 0) as server:
        page = chromium.open(server.url, scheme)
        eventually(lambda: page.value("Number(document.body?.dataset.polls ?? 0)") > 0, "the groups")
        assert page.value("document.querySelector('#group-rows button').textContent") == GROUP
        assert all(page.value(DRAWN))
        assert background(page) == BACKGROUNDS[scheme]
        assert page.value("document.querySelectorAll('.strip').length") == 2
        tab_to(page, "focused.closest('.strip') !== null")
        first = page.value("Number(document.activeElement.dataset.first)")
        page.press("Enter")
        title = "document.getElementById('history-title').textContent"
        eventually(lambda: page.value(title) == f"History of orders-0, offset {first}", "the history of the run")
        polls = page.value("Number(document.body.dataset.polls)")
        eventually(lambda: page.value("Number(document.body.dataset.polls)") > polls, "the next poll")
        assert page.value("Number(document.activeElement.dataset.first)") == first, "the focus stays"
        page.keep_screenshot(f"dashboard-{scheme}")
        page.press("Escape")
        assert page.value("document.getElementById('history').hidden")
        assert page.value("document.activeElement.closest('.strip') !== null"), "the focus is where it was"
        page.click(".strip button:last-of-type")
        eventually(lambda: page.value("!document.getElementById('history').hidden"), "the history, by a click")
        assert page.errors == []
        addresses = {url for url in page.requested_urls if not url.startswith(("data:", "blob:", server.url))}
        assert addresses == set()
