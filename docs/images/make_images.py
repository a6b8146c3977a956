"""Take the screenshots of this folder: ``make images``. Needs Chromium.

The sample project is imported and consolidated in a temporary folder. One suggestion is added by hand, for suggestions
need a language model.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.database.engine import open_engine
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.suggestions import NewSuggestion, append_suggestions
from consolidation_pipeline_tests.api.browser import open_browser

FOLDER = Path(__file__).parent
BIN = Path(sys.executable).parent
PAGES, DAGSTER = 8651, 8652
ORIGINALS = """
    SELECT DISTINCT ON (version_named) id, version FROM (
        SELECT id, version, execution_summary AS content FROM consolidation.task_memories
        WHERE NOT is_consolidated AND NOT is_archived
        UNION ALL
        SELECT id, version, content FROM consolidation.consolidated_memories
        WHERE kind = 'merged' AND retired_at IS NULL) active,
        substring(content FROM '^The front end needs Node (2[02])') AS version_named
    WHERE version_named IS NOT NULL ORDER BY version_named, id
"""
PROPOSED = (
    "The front end needs Node 22 (Node 20 until December 2025): web/.nvmrc, the CI job and the build stage of "
    "docker/web.Dockerfile name the same version."
)


def suggest() -> None:
    """Propose to merge two memories of the sample that differ in a version."""
    engine = open_engine(Settings())
    with engine.begin() as connection:
        originals = [tuple(row) for row in connection.exec_driver_sql(ORIGINALS)]
        suggestion = NewSuggestion(
            cluster_key="node",
            originals=originals,
            fingerprint="node",
            content=PROPOSED,
            lessons_learned=None,
            keywords=["node", "front end"],
            similarity=0.99,
            rationale="2 memories may say the same (lowest similarity 0.99); value: 20 / 22",
        )
        author = Author(get_project(connection, "sample").id, None, "images")
        append_suggestions(connection, author, [suggestion], now=datetime.now(UTC))
    engine.dispose()


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
        suggest()
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
            browser.resize(1500, 640)
            browser.open(graph)
            browser.wait_for("document.body.innerText.includes('lifecycle')")
            expand = {"modifiers": 1, "key": "e", "code": "KeyE"}  # Alt+E expands all groups
            browser.call("Input.dispatchKeyEvent", type="keyDown", **expand)
            browser.call("Input.dispatchKeyEvent", type="keyUp", **expand)
            time.sleep(5)  # the graph is laid out
            browser.take_screenshot(FOLDER / "dagster.png", whole=False)


if __name__ == "__main__":
    main()
