"""The servers of the run, and ways to one of them that fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sharegroup.config.table_location import TableLocation
from tests.support import azurite
from tests.support.azurite import Azurite
from tests.support.faulty_proxy import FaultyProxy
from tests.support.s3proxy import S3Proxy


@pytest.fixture(scope="package")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    """An S3 server for all tests of this folder."""
    with S3Proxy(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="package")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A server of Azure's blobs for all tests of this folder; they are skipped where it is not installed."""
    if reason := azurite.missing():
        pytest.skip(reason)
    with Azurite(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.fixture(params=["s3", "azure"])
def table(request: pytest.FixtureRequest) -> TableLocation:
    """The location of a table that does not exist yet."""
    server: S3Proxy | Azurite = request.getfixturevalue(request.param)
    return server.new_table()


@pytest.fixture(scope="package")
def a_proxy(s3: S3Proxy) -> Iterator[FaultyProxy]:
    """The proxy of all tests of this folder."""
    with FaultyProxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def proxy(a_proxy: FaultyProxy) -> Iterator[FaultyProxy]:
    """A way to the server that fails on request."""
    a_proxy.fail()
    yield a_proxy
    a_proxy.fail()
