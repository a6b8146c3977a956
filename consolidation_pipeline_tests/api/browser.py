"""Chromium for tests of the pages, controlled over the DevTools protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Chromium sends nothing to other machines on its own.
_OFFLINE_FLAGS = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
_WAIT_SECONDS = 20.0


class Browser:
    """One page of a browser. It polls for a condition instead of sleeping a fixed time."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, count(1)
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        message = self._send_command(method, parameters)
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def _send_command(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        id_ = next(self._ids)
        self._socket.send(json.dumps({"id": id_, "method": method, "params": parameters}))
        while (message := json.loads(self._socket.recv(timeout=_WAIT_SECONDS))).get("id") != id_:
            self._record_errors(message)
        answer: dict[str, Any] = message
        return answer

    def _record_errors(self, event: dict[str, Any]) -> None:
        """Record errors of scripts and refused resources, such as violations of the Content-Security-Policy."""
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(event["params"]["exceptionDetails"]))
        if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.errors.append(event["params"]["entry"]["text"])

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until the page is loaded and an expression is true."""
        end = time.monotonic() + _WAIT_SECONDS
        while not self._is_true(condition):
            assert time.monotonic() < end, (
                f"{condition} is not true on the page {self.evaluate('document.body.innerText')}"
            )
            time.sleep(0.02)

    def _is_true(self, condition: str) -> bool:
        script = f"document.readyState === 'complete' && Boolean({condition})"
        message = self._send_command("Runtime.evaluate", {"expression": script, "returnByValue": True})
        # During navigation there is no page to evaluate in.
        return "result" in message and message["result"]["result"].get("value") is True

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.navigate(lambda: self.call("Page.navigate", url=url))

    def navigate(self, action: Callable[[], object]) -> None:
        """Run an action that leads to another page and wait until that page is loaded."""
        self.evaluate("window.isBefore = true")
        action()
        self.wait_for("!window.isBefore")

    def press(self, key: str) -> None:
        """Press one key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type_text(self, text: str) -> None:
        """Insert text into the focused element."""
        self.call("Input.insertText", text=text)

    def text(self) -> str:
        """Return the visible text of the page."""
        return str(self.evaluate("document.body.innerText"))

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window's size in pixels and its color scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def take_screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page to ``path``; ``whole``: also the part outside of the window."""
        screenshot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(b64decode(screenshot["data"]))


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with its own profile in ``folder``."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *_OFFLINE_FLAGS]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(find_page_socket(folder / "DevToolsActivePort"), max_size=None, proxy=None) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        process.wait()


def find_page_socket(port_file: Path) -> str:
    end = time.monotonic() + _WAIT_SECONDS
    while not (port_file.exists() and port_file.read_text().count("\n")):
        assert time.monotonic() < end, "the browser did not start"
        time.sleep(0.05)
    port = port_file.read_text().split("\n")[0]
    with urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
        pages = [page for page in json.load(answer) if page["type"] == "page"]
    return str(pages[0]["webSocketDebuggerUrl"])
