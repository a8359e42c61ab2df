"""An S3 server for tests: S3Proxy on a folder, at a random port, killed at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self
from uuid import uuid4

from sharegroup.config.table_location import TableLocation
from tests.support.fast_start import JAVA_OPTIONS
from tests.support.server_process import ServerProcess, free_port

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


class S3Proxy(ServerProcess):
    """The server, with one bucket.

    Args:
        folder: for its configuration and its objects.
    """

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
        self._start(command)
        return self
