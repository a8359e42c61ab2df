"""A server with the protocol of Azure's blobs for tests: Azurite on a folder, at a random port, killed at the end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from uuid import uuid4

from sharegroup.config.table_location import TableLocation
from tests.support.server_process import ServerProcess, free_port

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
    return "there is no Azurite; install Node with npm, with which `make test-rest` installs it"


class Azurite(ServerProcess):
    """The server, with one container.

    Args:
        folder: for its blobs.
    """

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
        self._start(command)
        self._create_container()
        return self

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
