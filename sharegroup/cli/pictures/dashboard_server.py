"""The dashboard's server: pages, scripts and JSON documents on 127.0.0.1, read only.

A page of another site may make a browser send requests here, by a name that it lets point to 127.0.0.1 (DNS
rebinding). So only requests for this address itself are served, only GET, and the page may load nothing from
elsewhere.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from sharegroup.cli.pictures.drawing import asset, plotly_script
from sharegroup.cli.pictures.live_groups import LiveGroups
from sharegroup.errors import ConfigurationError, GroupIdNotFoundError, ShareGroupError

HOST = "127.0.0.1"

_HTML, _SCRIPT, _STYLE, _JSON = "text/html", "text/javascript", "text/css", "application/json"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TIMEOUT_S = 60


class DashboardServer:
    """A server on a thread of its own, as long as its `with` block.

    Args:
        port: the port; 0 takes a free one.

    Raises:
        ConfigurationError: the port cannot be listened on.
        EnvironmentNotReadyError: plotly is not installed.
    """

    def __init__(self, groups: LiveGroups, port: int) -> None:
        files = {
            "/": (_HTML, asset("dashboard.html")),
            "/page.css": (_STYLE, asset("page.css") + asset("dashboard.css")),
            "/dashboard.js": (_SCRIPT, asset("charts.js") + asset("dashboard.js")),
            "/plotly.js": (_SCRIPT, plotly_script()),
        }
        pages = {path: (kind, text.encode()) for path, (kind, text) in files.items()}
        handler = type("DashboardHandler", (_Handler,), {"groups": groups, "pages": pages})
        try:
            self._server = _Server((HOST, port), handler)
        except OSError as error:
            raise ConfigurationError(
                f"Port {port} of {HOST} cannot be listened on: {error.strerror}.",
                "Name a free port with --port, or 0 for any.",
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="dashboard", daemon=True)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that leaves during a response is no error.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    groups: LiveGroups
    pages: Mapping[str, tuple[str, bytes]]

    protocol_version = "HTTP/1.1"
    server_version = "sharegroup"
    sys_version = ""
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if not self._is_for_this_server():
            self._refuse(HTTPStatus.FORBIDDEN, "This server serves its own address only.")
        elif address.path in self.pages:
            self._respond(HTTPStatus.OK, *self.pages[address.path])
        elif address.path in _DOCUMENTS:
            query = {name: values[-1] for name, values in parse_qs(address.query).items()}
            self._respond_with_document(address.path, query)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such page.")

    def do_other(self) -> None:
        self.close_connection = True
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This server is read only: GET.", {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = do_other  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal shows the address."""

    def _is_for_this_server(self) -> bool:
        port = self.connection.getsockname()[1]
        return self.headers.get_all("Host", []) in ([f"{name}:{port}"] for name in (HOST, "localhost"))

    def _respond_with_document(self, path: str, query: Mapping[str, str]) -> None:
        try:
            document = _DOCUMENTS[path](self.groups, query)
        except GroupIdNotFoundError as error:
            self._refuse(HTTPStatus.NOT_FOUND, str(error))
        except (KeyError, ValueError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"The address lacks a parameter, or it is not a number: {error}.")
        except ShareGroupError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        else:
            self._respond(HTTPStatus.OK, _JSON, json.dumps(document, ensure_ascii=False).encode())

    def _refuse(self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> None:
        self._respond(status, _JSON, json.dumps({"error": text}).encode(), headers)

    def _respond(self, status: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


_DOCUMENTS: Mapping[str, Callable[[LiveGroups, Mapping[str, str]], dict[str, Any]]] = {
    "/groups": lambda groups, query: groups.groups(),
    "/group": lambda groups, query: groups.group(query["id"]),
    "/history": lambda groups, query: groups.history(
        query["group"], query["topic"], int(query["partition"]), int(query["offset"])
    ),
}
"""Path → the document of a query."""
