"""Take the screenshots of this folder: ``make images``. Needs Chromium.

The sample project is imported and consolidated in a temporary folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from PIL import Image

from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.api.browser import open_browser

FOLDER = Path(__file__).parent
BIN = Path(sys.executable).parent
PAGES, DAGSTER = 8651, 8652
# JavaScript: hides the navigation, and the list of groups with the button beside its search field.
_HIDE_SIDEBARS = """
(() => {
  [...document.querySelectorAll("button, a, div")].findLast((one) => one.innerText === "Hide navigation").click();
  let at = document.querySelector("input[placeholder^='Jump to']");
  while (!at.querySelector("button")) at = at.parentElement;
  at.querySelector("button").click();
})()
"""


@contextmanager
def serving(url: str, *command: str) -> Iterator[None]:
    """Run a server for a while; yields when ``url`` answers."""
    process = subprocess.Popen([str(BIN / command[0]), *command[1:]], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with suppress(OSError), urlopen(url):
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def shrink(path: Path) -> None:
    """Write an image again with 256 colours: less than half as large."""
    with Image.open(path) as image:
        image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            path, optimize=True
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "dagster.yaml").write_text((PROJECT_ROOT / "dagster.yaml").read_text())
        os.environ |= {"CONSOLIDATION_DATA_DIR": folder, "DAGSTER_HOME": folder, "CONSOLIDATION_API_AUTH": "off"}
        command = str(BIN / "consolidation")
        sample = [PROJECT_ROOT / "examples/memories.jsonl", "--project", "sample", "--scope", "project"]
        subprocess.run([command, "import", *sample], check=True)
        subprocess.run([command, "projects", "configure", "sample", "archive=false"], check=True)
        subprocess.run([command, "run", "sample"], check=True)
        review = f"http://127.0.0.1:{PAGES}/review"
        graph = f"http://127.0.0.1:{DAGSTER}/asset-groups"
        workspace = ("-w", str(PROJECT_ROOT / "workspace.yaml"))
        with (
            serving(review, "consolidation", "serve", "--port", str(PAGES)),
            serving(graph, "dagster-webserver", *workspace, "-p", str(DAGSTER)),
            open_browser(Path(folder) / "browser") as browser,
        ):
            browser.resize(1180, 820)
            browser.open(review)
            browser.take_screenshot(FOLDER / "review.png", whole=False)
            browser.resize(1500, 870)
            browser.open(graph)
            browser.wait_for("document.body.innerText.includes('lifecycle')")
            browser.evaluate(_HIDE_SIDEBARS)  # the wider graph has larger words
            time.sleep(1)
            expand = {"modifiers": 1, "key": "e", "code": "KeyE"}  # Alt+E expands all groups
            browser.call("Input.dispatchKeyEvent", type="keyDown", **expand)
            browser.call("Input.dispatchKeyEvent", type="keyUp", **expand)
            time.sleep(5)  # the graph is laid out
            browser.take_screenshot(FOLDER / "dagster.png", whole=False)
    for name in ("review.png", "dagster.png"):
        shrink(FOLDER / name)


if __name__ == "__main__":
    main()
