"""`export`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli, sample_rows

ODD = (
    {
        "id": "odd-1",
        "content": "  Blanks around, [brackets], :smile:, \"quotes\" and ümlauts stay.  ",
        "memory_type": "decision",
        "goal": "g",
        "result": "r",
        "feedback": "f",
        "lessons_learned": "l",
        "tags": ["a", "b, c"],
        "files": ["src/b.py", "src/a.py"],
        "tool_usage": '"12"',
        "error_patterns": [{"kind": "timeout", "n": 3}],
        "metadata": {"deep": {"list": [1, 2.5, None, True]}},
        "success": False,
        "importance": 2.5,
        "pinned": True,
        "reused_count": 7,
        "last_accessed_at": "2026-01-02T03:04:05.678901Z",
        "created_at": "2025-12-31T23:59:59Z",
        "language": "german",
        "task_id": "t",
        "user_id": "u",
        "agent_id": "ag",
        "session_id": "s",
    },
    {"content": "No id: the row's hash stands for it.", "created_at": "2026-01-01"},
    {"id": "null-tools", "content": "x", "tool_usage": "plain text", "created_at": "2026-01-01"},
)  # fmt: skip

RUN_DECIDES = ("created_at", "version", "project_id", "relevance_score", "relevance_at", "graph_version")


def stored(engine: Engine) -> list[dict[str, Any]]:
    """All raw memories as rows, files included, without what is new with every store."""
    with engine.connect() as connection:
        query = (
            "SELECT to_jsonb(m) || jsonb_build_object('files', (SELECT jsonb_agg(path ORDER BY path) "
            "FROM consolidation.memory_files f WHERE f.owner_id = m.id)) FROM consolidation.task_memories m ORDER BY id"
        )
        rows = connection.scalars(text(query)).all()
    return [{name: value for name, value in row.items() if name not in RUN_DECIDES} for row in rows]


def test_an_export_comes_back_as_the_same_memories(
    cli: Cli, write: Callable[..., Path], engine: Engine, tmp_path: Path
) -> None:
    cli("import", write(*ODD, *sample_rows(30)), "--project", "p", "--source", "first source")
    before = stored(engine)
    assert len(before) == 33
    file = tmp_path / "export.jsonl"
    done = cli("export", "p", file, "--json")
    assert (done.code, done.json["memories"], done.json["derived"]) == (0, 33, 0)
    assert cli("import", file, "--project", "p", "--json").json["unchanged"] == 33
    cli("projects", "delete", "p", "--yes")
    assert cli("import", file, "--project", "p", "--json").json["added"] == 33
    assert stored(engine) == before


def test_an_export_goes_to_standard_output(cli: Cli, consolidated: dict[str, Any]) -> None:
    del consolidated
    answer = cli("export", "notes", "-")
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert (answer.code, len(rows)) == (0, 6)
    assert {row["source"] for row in rows} == {"test"}
    assert {row["id"] for row in rows} == {f"n{at}" for at in range(6)}
    assert not any(row.keys() & {"embedding", "consolidated_into_id", "relevance_score", "kind"} for row in rows)
    assert cli("export", "notes", "-", "--json").code == 2


def test_derived_rows_say_their_sources_and_are_refused_by_an_import(
    cli: Cli, consolidated: dict[str, Any], tmp_path: Path
) -> None:
    del consolidated
    file = tmp_path / "whole.jsonl"
    assert cli("export", "notes", file, "--with-derived", "--json").json["derived"] == 1
    derived = json.loads(file.read_text().splitlines()[-1])
    assert (derived["kind"], derived["abstraction_level"]) == ("merged", 1)
    assert "migrations" in derived["text"]
    assert sorted(source["external_id"] for source in derived["sources"]) == ["n0", "n1", "n2"]
    answer = cli("import", file, "--project", "copy", "--json")
    assert (answer.code, answer.json["added"], [row["line"] for row in answer.json["bad_rows"]]) == (1, 6, [7])


def test_an_export_replaces_a_file_only_when_it_is_whole(cli: Cli, tmp_path: Path) -> None:
    cli("projects", "create", "empty")
    file = tmp_path / "kept.jsonl"
    file.write_text("old")
    assert cli("export", "nowhere", file).code == 2
    assert file.read_text() == "old"
    assert cli("export", "empty", file).code == 0
    assert file.read_text() == ""
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("name", [".", "missing/folder/x.jsonl"])
def test_a_file_that_cannot_be_written_is_a_usage_error(cli: Cli, tmp_path: Path, name: str) -> None:
    cli("projects", "create", "empty")
    answer = cli("export", "empty", tmp_path / name)
    assert (answer.code, "cannot write" in answer.err) == (2, True)


def test_a_device_is_written_to_and_stays_a_device(cli: Cli) -> None:
    cli("projects", "create", "empty")
    assert cli("export", "empty", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
