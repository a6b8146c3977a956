"""`backup create`, `check` and `restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consolidation_pipeline_tests.cli.conftest import Cli


@pytest.mark.slow
@pytest.mark.usefixtures("consolidated")
def test_backup_round_trip_by_commands(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, empty_database_url: str, tmp_path: Path, consolidated: dict[str, Any]
) -> None:
    file = tmp_path / "notes.backup"
    made = cli("backup", "create", file)
    assert (made.code, f"{file} is written: 1 project, 6 raw memories" in made.out) == (0, True)
    checked = cli("backup", "check", file, "--json").json
    assert (checked["state"], checked["rows"]["task_memories"]) == ("complete", 6)
    history = cli("history", "notes", "--json").json
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", empty_database_url)
    restored = cli("backup", "restore", file)
    assert (restored.code, "is restored" in restored.out) == (0, True)
    assert restored.err.splitlines()[-1].startswith("into Postgres at postgresql+psycopg://")
    assert cli("history", "notes", "--json").json == history
    assert cli("rollback", consolidated["job_id"]).code == 0
    refused = cli("backup", "restore", file, "--json")
    assert (refused.code, refused.json["error"]) == (3, "conflict")
    assert cli("backup", "restore", file, "--replace", "--json").json["restored_revision"] == checked["revision"]


def test_file_that_is_no_backup_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("text")
    answer = cli("backup", "check", tmp_path / "notes.txt")
    assert (answer.code, "notes.txt is no backup of this program" in answer.err) == (2, True)
