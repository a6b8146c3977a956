"""The command line in this process, on a fresh database and a Dagster home of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from consolidation_pipeline.cli import app
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.database.engine import connect_engine, with_driver
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

# Not old enough to be stale.
RECENT = (date.today() - timedelta(days=40)).isoformat()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs one command; the environment is the caller's to set."""
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


_IN_FILES = dg.DagsterInstance.get


@pytest.fixture
def dagster_home(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find Dagster's records in its home, for tests of what is read back from there."""
    del command
    monkeypatch.setattr(dg.DagsterInstance, "get", _IN_FILES)


def _keep_events_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Runs leave nothing in the Dagster home: writing their events to files takes longer than the runs do."""
    patch.setattr(dg.DagsterInstance, "get", dg.DagsterInstance.ephemeral)


@pytest.fixture
def cli(command: Cli, settings: Settings) -> Cli:
    """Runs one command on a fresh, migrated database."""
    del settings
    return command


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows to a JSON Lines file."""

    def write_rows(*rows: Mapping[str, object] | str, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return path

    return write_rows


LESSONS = (
    "Run the database migrations before the workers start, or the first jobs fail on missing columns.",
    "Run the database migrations before the workers start, or the first jobs fail on missing columns!",
    "Run the database migrations before the workers start, otherwise the first jobs fail on missing columns.",
    "The search client times out after 30 s; batch the requests to stay below that.",
    "The search client times out after 60 s; batch the requests to stay below that.",
    "Colour tokens of the design system live in theme.css and are generated from Figma.",
)


@dataclass(frozen=True)
class Consolidated:
    """A database in which the project `notes` was imported and run once, and the answer of that run."""

    database: str
    answer: dict[str, Any]


@pytest.fixture(scope="session")
def consolidated_once(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consolidated]:
    """Made once: a run takes seconds, a copy of its database does not."""
    folder = tmp_path_factory.mktemp("consolidated")
    rows = [{"id": f"n{at}", "content": text, "created_at": RECENT} for at, text in enumerate(LESSONS)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    database = f"consolidated_{uuid4().hex[:12]}"
    url = make_url(server).set(database=database).render_as_string(hide_password=False)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONSOLIDATION_DATABASE_URL", url)
        patch.setenv("CONSOLIDATION_DATA_DIR", str(folder))
        patch.setenv("DAGSTER_HOME", str(folder))
        patch.setattr(app, "ENV_FILE", folder / ".env")
        _keep_events_in_memory(patch)
        answer = _run_once(folder / "rows.jsonl")
    connect_engine(with_driver(url, "psycopg")).dispose()
    yield Consolidated(database, answer)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))


def _run_once(rows: Path) -> dict[str, Any]:
    said = io.StringIO()
    assert app.run_command(["init"]) == 0
    assert app.run_command(["import", str(rows), "--project", "notes", "--source", "test"]) == 0
    with redirect_stdout(said):
        assert app.run_command(["run", "notes", "--json"]) == 0
    answer: dict[str, Any] = json.loads(said.getvalue())
    return answer


@pytest.fixture
def consolidated(server: str, database_url: str, consolidated_once: Consolidated) -> dict[str, Any]:
    """The test's database holds the project `notes`, imported and run once; the answer of that run."""
    database = sql.Identifier(str(make_url(database_url).database))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))
        template = sql.Identifier(consolidated_once.database)
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(database, template))
    return consolidated_once.answer


def sample_rows(count: int) -> list[str]:
    """The first lines of the sample memories."""
    return (PROJECT_ROOT / "examples" / "memories.jsonl").read_text().splitlines()[:count]
