"""A browser to look at the pages with: Chromium, told what to do over its DevTools protocol."""

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
# Nothing that the test does not ask for leaves the machine.
_QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
_WAIT_SECONDS = 20.0


class Browser:
    """One page of a browser. It waits for what is asked for instead of sleeping so long."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, count(1)
        self.problems: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        said = self._ask(method, parameters)
        assert "error" not in said, said
        result: dict[str, Any] = said["result"]
        return result

    def _ask(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        id_ = next(self._ids)
        self._socket.send(json.dumps({"id": id_, "method": method, "params": parameters}))
        while (said := json.loads(self._socket.recv(timeout=_WAIT_SECONDS))).get("id") != id_:
            self._listen(said)
        answer: dict[str, Any] = said
        return answer

    def _listen(self, event: dict[str, Any]) -> None:
        """Note errors of scripts, and what the browser refused, such as for the Content-Security-Policy."""
        if event["method"] == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(event["params"]["exceptionDetails"]))
        if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.problems.append(event["params"]["entry"]["text"])

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true in a page that is loaded."""
        end = time.monotonic() + _WAIT_SECONDS
        while not self._holds(condition):
            assert time.monotonic() < end, f"{condition} is not true of {self.evaluate('document.body.innerText')}"
            time.sleep(0.02)

    def _holds(self, condition: str) -> bool:
        script = f"document.readyState === 'complete' && Boolean({condition})"
        said = self._ask("Runtime.evaluate", {"expression": script, "returnByValue": True})
        # Between two pages there is none to ask.
        return "result" in said and said["result"]["result"].get("value") is True

    def open(self, url: str) -> None:
        """Go to a page and wait until it is there."""
        self.leave(lambda: self.call("Page.navigate", url=url))

    def leave(self, action: Callable[[], object]) -> None:
        """Do what leads to another page, and wait until that is there."""
        self.evaluate("window.isBefore = true")
        action()
        self.wait("!window.isBefore")

    def press(self, key: str) -> None:
        """Press one key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def write(self, text: str) -> None:
        """Write into what has the focus."""
        self.call("Input.insertText", text=text)

    def text(self) -> str:
        """What the page says."""
        return str(self.evaluate("document.body.innerText"))

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Change the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def shoot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(b64decode(taken["data"]))


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in ``folder``."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *_QUIET]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(_find_page(folder / "DevToolsActivePort"), max_size=None, proxy=None) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        process.wait()


def _find_page(port_file: Path) -> str:
    end = time.monotonic() + _WAIT_SECONDS
    while not (port_file.exists() and port_file.read_text().count("\n")):
        assert time.monotonic() < end, "the browser does not start"
        time.sleep(0.05)
    port = port_file.read_text().split("\n")[0]
    with urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
        pages = [page for page in json.load(answer) if page["type"] == "page"]
    return str(pages[0]["webSocketDebuggerUrl"])
