"""Headless Chromium, driven over the pipe of its DevTools protocol: pages are loaded, read, and used by keyboard."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import leash
from tests.support.eventually import DEADLINE_S

MISSING = "there is no Chromium; install the package chromium (apt-get install chromium)"
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"

_FLAGS = (
    "--headless",
    # The tests may run as root.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--window-size=1280,900",
    "--remote-debugging-pipe",
)
_KEYS = {"Enter": 13, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Escape": 27}


def installed() -> str | None:
    """The program, where it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    """A running browser, as long as its `with` block.

    Args:
        program: the path of Chromium.
        folder: for its profile.
    """

    def __init__(self, program: str, folder: Path) -> None:
        self._command = [program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._output = folder.with_name(f"{folder.name}-output")
        self._received = b""
        self._last_id = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        to_read, self._write_fd = os.pipe()
        self._read_fd, to_write = os.pipe()
        # It reads commands from file descriptor 3, and writes responses to 4.
        start = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "chromium", *self._command]
        with self._output.open("wb") as output:
            self._process = leash.start(start, pass_fds=(to_read, to_write), stderr=output)
        os.close(to_read)
        os.close(to_write)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leash.end(self._process)
        os.close(self._write_fd)
        os.close(self._read_fd)

    def open(self, url: str, scheme: str = "light") -> Page:
        """Load a page, with the colours that the reader's system is set to."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.call("Emulation.setEmulatedMedia", {"features": features})
        page.call("Page.navigate", {"url": url})
        return page

    def call(self, method: str, parameters: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """The result of a command; events that come meanwhile are kept."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        try:
            os.write(self._write_fd, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise AssertionError(f"Chromium ended before {method}: {self._end()}") from None
        give_up_at = time.monotonic() + DEADLINE_S
        while True:
            response = self._next(give_up_at, method)
            if response.get("id") == self._last_id:
                assert "error" not in response, (method, response)
                result: dict[str, Any] = response["result"]
                return result
            self._events.append(response)

    def events(self, session: str, methods: Sequence[str]) -> list[dict[str, Any]]:
        """The parameters of the events of a page so far."""
        return [
            event["params"]
            for event in self._events
            if event.get("sessionId") == session and event.get("method") in methods
        ]

    def _end(self) -> str:
        """Its exit code, if it has ended, and the end of what it printed."""
        return f"exit code {self._process.poll()}; {self._output.read_text(errors='replace')[-2_000:]}"

    def _next(self, give_up_at: float, method: str) -> dict[str, Any]:
        # Not `select`, which refuses the numbers above 1,023 that a process with many clients has.
        responses = select.poll()
        responses.register(self._read_fd, select.POLLIN)
        while b"\0" not in self._received:
            is_ready = responses.poll(max(give_up_at - time.monotonic(), 0) * 1_000)
            data = os.read(self._read_fd, 1 << 20) if is_ready else b""
            assert data, f"Chromium does not respond to {method}: {self._end()}"
            self._received += data
        message, _, self._received = self._received.partition(b"\0")
        response: dict[str, Any] = json.loads(message)
        return response


class Page:
    """A page in the browser."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of a command for this page."""
        return self._browser.call(method, parameters, self._session)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        response = self.call("Runtime.evaluate", parameters)
        assert "exceptionDetails" not in response, response
        return response["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        fields: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", **fields, **text})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **fields})

    def click(self, selector: str, at: float = 0.5) -> None:
        """Click on an element, at a part of its width."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'});"
            " const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
        )
        point = {"x": box[0] + box[2] * at, "y": box[1] + box[3] / 2, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", {"type": "mousePressed", **point})
        self.call("Input.dispatchMouseEvent", {"type": "mouseReleased", **point})

    @property
    def errors(self) -> list[Any]:
        """Exceptions of scripts, and what the browser reports as an error."""
        logged = self._browser.events(self._session, ["Log.entryAdded"])
        return [
            *self._browser.events(self._session, ["Runtime.exceptionThrown"]),
            *(event for event in logged if event["entry"]["level"] == "error"),
        ]

    @property
    def requested_urls(self) -> list[str]:
        """The addresses of all requests."""
        events = self._browser.events(self._session, ["Network.requestWillBeSent"])
        return [event["request"]["url"] for event in events]

    def keep_screenshot(self, name: str) -> Path:
        """Keep a picture of the whole page among the artefacts of the run."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 8_000), "scale": 1}
        response = self.call("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
        path = SCREENSHOTS / f"{name}.png"
        path.write_bytes(base64.b64decode(response["data"]))
        return path
