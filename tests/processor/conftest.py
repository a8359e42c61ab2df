"""Processors for tests: one that all may use, and new ones for those that stop theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.site import Site


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running processor that tests share: each has groups and topics of its own, and lets it run."""
    site = Site(tmp_path_factory.mktemp("site"), {"configured": {"share.delivery.count.limit": "3"}})
    site.start()
    yield site
    site.close()


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes sites of a test's own, in one folder each; they are not started."""
    sites: list[Site] = []

    def make(folder: str = "site", groups: Mapping[str, Mapping[str, str]] | None = None) -> Site:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        sites.append(Site(path, groups or {}))
        return sites[-1]

    yield make
    for site in sites:
        site.close()
