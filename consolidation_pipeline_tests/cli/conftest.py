"""The command line in this process, on its own database and Dagster home."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consolidation_pipeline.cli import app
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.database_pool import fill
from consolidation_pipeline_tests.service.rules import rules_hold as rules_hold


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self
        answer: dict[str, Any] = json.loads(lines[0])
        return answer


Cli = Callable[..., Answer]
Write = Callable[..., Path]

# Too recent to be stale.
RECENT = (date.today() - timedelta(days=40)).isoformat()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Function that runs one command in the environment of the test."""
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(app, "ENV_FILE", tmp_path / ".env")
    _keep_events_in_memory(monkeypatch)

    def run(*arguments: object) -> Answer:
        code = app.run_command([str(argument) for argument in arguments])
        return Answer(code, *capfd.readouterr())

    return run


@contextmanager
def serve_process() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start `serve` in a process of its own, with the environment of the test; yield it and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = "from consolidation_pipeline.cli.app import main; main()"
    command = [sys.executable, "-c", start, "serve", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        yield process, port


_IN_FILES = dg.DagsterInstance.get


@pytest.fixture
def dagster_home(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands read Dagster's records from files in its home."""
    del command
    monkeypatch.setattr(dg.DagsterInstance, "get", _IN_FILES)


def _keep_events_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Keep events of Dagster in memory: writing files takes longer than the runs."""
    patch.setattr(dg.DagsterInstance, "get", dg.DagsterInstance.ephemeral)


@pytest.fixture
def cli(command: Cli, settings: Settings) -> Cli:
    """Function that runs one command on an empty, migrated database."""
    del settings
    return command


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Function that writes rows to a JSON Lines file."""

    def write_rows(*rows: Mapping[str, object] | str, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return path

    return write_rows


LESSONS = (
    "Run the database migrations before the workers start, or the first jobs fail on missing columns.",
    "Run the database migrations before the workers start, or the first jobs fail on missing columns!",
    "Note: Run the database migrations before the workers start, or the first jobs fail on missing columns.",
    "The search client times out after 30 s; batch the requests to stay below that.",
    "The search client times out after 60 s; batch the requests to stay below that.",
    "Colour tokens of the design system live in theme.css and are generated from Figma.",
)


@pytest.fixture
def consolidated(cli: Cli, write: Write, engine: Engine) -> dict[str, Any]:
    """Answer of a run of the project `notes`, which the test's database holds."""

    def build() -> dict[str, Any]:
        rows = [{"id": f"n{at}", "content": text, "created_at": RECENT} for at, text in enumerate(LESSONS)]
        assert cli("import", write(*rows), "--project", "notes", "--source", "test").code == 0
        # Tests of suggestions insert their own.
        assert cli("projects", "configure", "notes", "review_limit=0").code == 0
        return cli("run", "notes", "--json").json

    return fill(engine, build, "consolidated by the command line")


def sample_rows(count: int) -> list[str]:
    """Return the first lines of the sample memories."""
    return (PROJECT_ROOT / "examples" / "memories.jsonl").read_text().splitlines()[:count]
