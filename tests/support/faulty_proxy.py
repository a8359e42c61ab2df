"""A proxy before an HTTP server that fails as networks and servers do, on request.

It is a process of its own, since delta-rs lets no other thread run while it waits for some of its responses:

    python -m tests.support.faulty_proxy SERVER_PORT
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.request import Request, urlopen

from tests.support import leash


class Fault(Enum):
    """The ways in which a request gets its response, or not."""

    NONE = "it gets its response"
    AWAY = "the connection ends before the server sees it"
    REFUSED_500 = "the response is 500, and the server does not see it"
    REFUSED_503 = "the response is 503, and the server does not see it"
    LOST_RESPONSE = "the server carries it out, and the connection ends"
    FALSE_500 = "the server carries it out, and the response is 500"
    HANGS = "the server carries it out, and the response does not come in time"


_STATUS = {Fault.REFUSED_500: 500, Fault.REFUSED_503: 503, Fault.FALSE_500: 500}
_BEFORE = (Fault.AWAY, Fault.REFUSED_500, Fault.REFUSED_503)
_CONTROL = "/__control__"
_LONGEST_HANG_S = 30
_ANY = 1_000_000


@dataclass(frozen=True)
class Rule:
    """The requests that fail.

    Attributes:
        fault: name of the `Fault`.
        method: of the requests; any when it is empty.
        part: part of their paths.
        times: number of failures, for each path.
        most: number of failures in all.
        delay_s: time that all requests take longer.
    """

    fault: str = Fault.NONE.name
    method: str = ""
    part: str = ""
    times: int = _ANY
    most: int = _ANY
    delay_s: float = 0.0


class FaultyProxy:
    """The process of a proxy.

    Args:
        port: the server's port on this machine.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._process: subprocess.Popen[Any] | None = None
        self.endpoint = ""

    def fail(
        self,
        fault: Fault = Fault.NONE,
        *,
        method: str = "",
        part: str = "",
        times: int = _ANY,
        most: int = _ANY,
        delay_s: float = 0,
    ) -> None:
        """Let requests fail from now on; see `Rule`. The requests are counted from zero."""
        rule = Rule(fault.name, method, part, times, most, delay_s)
        with urlopen(Request(self.endpoint + _CONTROL, json.dumps(asdict(rule)).encode(), method="PUT")):
            return

    def requests(self) -> dict[str, int]:
        """Method → requests; `failed` → the paths of which a request failed."""
        with urlopen(self.endpoint + _CONTROL) as response:
            counts: dict[str, int] = json.loads(response.read())
            return counts

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.faulty_proxy", str(self._server_port)]
        self._process = leash.start(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        leash.end(self._process)
        self._process.stdout.close()


class _State:
    """The state that the threads of the proxy share."""

    lock = threading.Lock()
    rule = Rule()
    requests: ClassVar[Counter[str]] = Counter()
    failures: ClassVar[Counter[str]] = Counter()
    server_port = 0

    @classmethod
    def fault_of(cls, method: str, path: str) -> Fault:
        with cls.lock:
            cls.requests[method] += 1
            rule = cls.rule
            is_hit = rule.method in ("", method) and rule.part in path and rule.fault != Fault.NONE.name
            if not is_hit or cls.failures[path] >= rule.times or cls.failures.total() >= rule.most:
                return Fault.NONE
            cls.failures[path] += 1
            return Fault[rule.fault]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == _CONTROL:
            self._control(body)
            return
        fault = _State.fault_of(self.command, self.path)
        # A slow network is what is shown here; no test waits for it.
        time.sleep(_State.rule.delay_s)
        response, content = (None, b"") if fault in _BEFORE else self._forwarded(body)
        if fault is Fault.HANGS:
            time.sleep(_LONGEST_HANG_S)
        if fault in _STATUS:
            self._reply(_STATUS[fault], b"")
        elif fault is not Fault.NONE or response is None:
            self.close_connection = True
        else:
            headers = [(name, value) for name, value in response.getheaders() if name.lower() not in _OWN_HEADERS]
            length = response.getheader("Content-Length") if self.command == "HEAD" else None
            self._reply(response.status, content, headers, length)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

    def _control(self, body: bytes) -> None:
        with _State.lock:
            if self.command == "PUT":
                _State.rule = Rule(**json.loads(body))
                _State.requests.clear()
                _State.failures.clear()
            counts = {**_State.requests, "failed": len(_State.failures)}
        self._reply(200, json.dumps(counts).encode())

    def _reply(
        self, status: int, content: bytes, headers: list[tuple[str, str]] | None = None, length: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers or ():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _forwarded(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", _State.server_port)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        # The signature of a request covers the host that the client has named.
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response, content


_OWN_HEADERS = ("transfer-encoding", "connection", "content-length", "server", "date")


if __name__ == "__main__":
    _State.server_port = int(sys.argv[1])
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    proxy.daemon_threads = True
    print(proxy.server_port, flush=True)
    proxy.serve_forever()
