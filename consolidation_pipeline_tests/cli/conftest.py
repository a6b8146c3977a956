"""The command line in this process, on its own database and Dagster home."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import make_url

from consolidation_pipeline.cli import app
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.database.engine import connect_engine, with_driver
from consolidation_pipeline_tests.database_pool import DatabasePool, temporary_database
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


@dataclass(frozen=True)
class Consolidated:
    """Name of a database with the project `notes`, imported and run once, and the answer of that run."""

    database: str
    answer: dict[str, Any]


@pytest.fixture(scope="session")
def consolidated_once(databases: DatabasePool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consolidated]:
    """Database with a completed run, copied for each test that needs one."""
    folder = tmp_path_factory.mktemp("consolidated")
    rows = [{"id": f"n{at}", "content": text, "created_at": RECENT} for at, text in enumerate(LESSONS)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with databases.database() as url:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CONSOLIDATION_DATABASE_URL", url)
            patch.setenv("CONSOLIDATION_DATA_DIR", str(folder))
            patch.setenv("DAGSTER_HOME", str(folder))
            patch.setattr(app, "ENV_FILE", folder / ".env")
            _keep_events_in_memory(patch)
            answer = _run_once(folder / "rows.jsonl")
        connect_engine(with_driver(url, "psycopg")).dispose()  # Postgres copies only databases without connections
        yield Consolidated(str(make_url(url).database), answer)


def _run_once(rows: Path) -> dict[str, Any]:
    output = io.StringIO()
    assert app.run_command(["init"]) == 0
    assert app.run_command(["import", str(rows), "--project", "notes", "--source", "test"]) == 0
    # Tests of suggestions insert their own.
    assert app.run_command(["projects", "configure", "notes", "review_limit=0"]) == 0
    with redirect_stdout(output):
        assert app.run_command(["run", "notes", "--json"]) == 0
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


@pytest.fixture
def database_url(request: pytest.FixtureRequest, server: str, databases: DatabasePool) -> Iterator[str]:
    """URL of a migrated database: for tests that use ``consolidated`` with its project, for others empty."""
    if "consolidated" in request.fixturenames:
        once: Consolidated = request.getfixturevalue("consolidated_once")
        database = temporary_database(server, once.database)
    else:
        database = databases.database()
    with database as url:
        yield url


@pytest.fixture
def consolidated(consolidated_once: Consolidated) -> dict[str, Any]:
    """Answer of a run of the project `notes`, which the test's database holds."""
    return consolidated_once.answer


def sample_rows(count: int) -> list[str]:
    """Return the first lines of the sample memories."""
    return (PROJECT_ROOT / "examples" / "memories.jsonl").read_text().splitlines()[:count]
