"""An S3 server for tests: S3Proxy on a folder, at a random port, killed at the end."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from sharegroup.config.table_location import TableLocation
from tests.support import leash
from tests.support.eventually import eventually
from tests.support.fast_start import JAVA_OPTIONS

JARS = Path(__file__).resolve().parents[2] / "build" / "jars" / "s3proxy"
BUCKET = "tables"
KEY, SECRET = "test-key", "test-secret-Lk2"


def s3_options(endpoint: str, **others: str) -> dict[str, str]:
    """Options of tables on an S3 server without TLS."""
    return {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
        **others,
    }


class S3Proxy:
    """The server, with one bucket.

    Args:
        folder: for its configuration and its objects.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[Any] | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def new_table(self, endpoint: str = "", **options: str) -> TableLocation:
        """The location of a table that does not exist yet.

        Args:
            endpoint: another way to the server.
            options: more options of the store.
        """
        return TableLocation(f"s3://{BUCKET}/{uuid4().hex}/state", s3_options(endpoint or self.endpoint, **options))

    def objects(self, table: TableLocation) -> Path:
        """The folder with the objects of a table."""
        return self._folder / "data" / str(table).removeprefix("s3://")

    def __enter__(self) -> Self:
        assert JARS.is_dir(), f"{JARS} is missing: run make setup JAR_SETS='spark s3proxy'"
        (self._folder / "data" / BUCKET).mkdir(parents=True)
        self.port = free_port()
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": KEY,
            "s3proxy.credential": SECRET,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self._folder / "data"),
        }
        text = "\n".join(f"{key}={value}" for key, value in properties.items())
        (self._folder / "s3proxy.conf").write_text(text)
        # Its own level is DEBUG: gigabytes in an hour.
        (self._folder / "logback.xml").write_text('<configuration><root level="OFF"/></configuration>')
        home = os.environ.get("JAVA_HOME")
        command = [f"{home}/bin/java" if home else "java", "-Xmx192m", *JAVA_OPTIONS.split()]
        command += [f"-Dlogback.configurationFile={self._folder}/logback.xml", "-cp", f"{JARS}/*"]
        command += ["org.gaul.s3proxy.Main", "--properties", f"{self._folder}/s3proxy.conf"]
        with (self._folder / "server.log").open("wb") as log:
            self._process = leash.start(command, stdout=log, stderr=log)
        eventually(self._accepts, "S3Proxy accepts connections")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            leash.end(self._process)

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False


def free_port() -> int:
    """A port that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
