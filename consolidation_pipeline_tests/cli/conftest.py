"""The command line in this process, on a fresh database and a Dagster home of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from consolidation_pipeline.cli import app
from consolidation_pipeline.settings import PROJECT_ROOT, Settings


@dataclass(frozen=True)
class Answer:
    """What a command ended with and wrote."""

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


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs one command; the environment is the caller's to set."""
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setattr(app, "ENV_FILE", tmp_path / ".env")

    def run(*arguments: object) -> Answer:
        code = app.run([str(argument) for argument in arguments])
        return Answer(code, *capfd.readouterr())

    return run


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


@pytest.fixture
def consolidated(cli: Cli, write: Callable[..., Path]) -> dict[str, Any]:
    """The project `notes`, imported and run once; the answer of that run."""
    rows = [{"id": f"n{at}", "content": text, "created_at": "2026-01-05"} for at, text in enumerate(LESSONS)]
    assert cli("import", write(*rows), "--project", "notes", "--source", "test").code == 0
    answer = cli("run", "notes", "--json")
    assert answer.code == 0, answer
    return answer.json


def sample_rows(count: int) -> list[str]:
    """The first lines of the sample memories."""
    return (PROJECT_ROOT / "examples" / "memories.jsonl").read_text().splitlines()[:count]
