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

from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.api.browser import open_browser

FOLDER = Path(__file__).parent
BIN = Path(sys.executable).parent
PAGES, DAGSTER = 8651, 8652


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
            browser.resize(1500, 800)
            browser.open(graph)
            browser.wait_for("document.body.innerText.includes('lifecycle')")
            expand = {"modifiers": 1, "key": "e", "code": "KeyE"}  # Alt+E expands all groups
            browser.call("Input.dispatchKeyEvent", type="keyDown", **expand)
            browser.call("Input.dispatchKeyEvent", type="keyUp", **expand)
            time.sleep(5)  # the graph is laid out
            browser.take_screenshot(FOLDER / "dagster.png", whole=False)


if __name__ == "__main__":
    main()
