"""A server with the protocol of Azure's blobs for tests: Azurite on a folder, at a random port, killed at the end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from sharegroup.config.table_location import TableLocation
from tests.support import leash
from tests.support.eventually import eventually
from tests.support.s3proxy import free_port

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
CONTAINER = "tables"
ACCOUNT = "devstoreaccount1"
# The key that every Azurite has.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"


def missing() -> str:
    """Why there is no Azurite here; empty when there is one."""
    if PROGRAM.exists() and shutil.which("node"):
        return ""
    return "Azurite is not installed: it needs Node, with which `make test` installs it"


class Azurite:
    """The server, with one container.

    Args:
        folder: for its blobs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[Any] | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def new_table(self) -> TableLocation:
        """The location of a table that does not exist yet."""
        options = {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_storage_endpoint": self.endpoint,
            "allow_http": "true",
        }
        return TableLocation(f"az://{CONTAINER}/{uuid4().hex}/state", options)

    def __enter__(self) -> Self:
        self.port = free_port()
        command = [str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        command += ["--location", str(self._folder), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        with (self._folder / "server.log").open("wb") as log:
            self._process = leash.start(command, stdout=log, stderr=log)
        eventually(self._accepts, "Azurite accepts connections")
        self._create_container()
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

    def _create_container(self) -> None:
        # No client of ours creates containers: it is one signed request.
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": date, "x-ms-version": _VERSION}
        listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        path = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        signed = hmac.new(base64.b64decode(KEY), ("PUT" + "\n" * 12 + listed + path).encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signed.digest()).decode()}"
        headers["Content-Length"] = "0"
        address = f"{self.endpoint}/{CONTAINER}?restype=container"
        with urllib.request.urlopen(urllib.request.Request(address, method="PUT", headers=headers), timeout=10):
            pass
