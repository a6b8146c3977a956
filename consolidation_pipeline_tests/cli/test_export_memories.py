"""`export`."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from consolidation_pipeline.service.intake import export_formats
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli, Write, sample_rows

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
    {"id": "lines", "content": 'a,b;c\td\r\n"e"\rf\n\ng', "goal": "-1", "result": "=1+1", "created_at": "2026-01-01"},
)  # fmt: skip

RUN_DECIDES = ("created_at", "version", "project_id")


def stored(engine: Engine) -> list[dict[str, Any]]:
    """Return all raw memories with files, without columns that differ in every database."""
    with engine.connect() as connection:
        query = (
            "SELECT to_jsonb(m) || jsonb_build_object('files', (SELECT jsonb_agg(path ORDER BY path) "
            "FROM consolidation.memory_files f WHERE f.owner_id = m.id)) FROM consolidation.task_memories m ORDER BY id"
        )
        rows = connection.scalars(text(query)).all()
    return [{name: value for name, value in row.items() if name not in RUN_DECIDES} for row in rows]


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_export_round_trips(cli: Cli, write: Write, engine: Engine, tmp_path: Path, format: str) -> None:
    cli("import", write(*ODD, *sample_rows(30)), "--project", "p", "--source", "first source")
    before = stored(engine)
    assert len(before) == 34
    file = tmp_path / f"export.{format}"
    done = cli("export", "p", file, "--format", format, "--json")
    assert (done.code, done.json["format"], done.json["memories"], done.json["derived"]) == (0, format, 34, 0)
    assert cli("import", file, "--project", "p", "--json").json["unchanged"] == 34
    cli("projects", "delete", "p", "--yes")
    assert cli("import", file, "--project", "p", "--json").json["added"] == 34
    assert stored(engine) == before


@pytest.mark.usefixtures("consolidated")
def test_export_writes_standard_output(cli: Cli) -> None:
    answer = cli("export", "notes", "-")
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert (answer.code, len(rows)) == (0, 6)
    assert {row["source"] for row in rows} == {"test"}
    assert {row["id"] for row in rows} == {f"n{at}" for at in range(6)}
    assert not any(row.keys() & {"embedding", "consolidated_into_id", "relevance_score", "kind"} for row in rows)
    assert cli("export", "notes", "-", "--json").code == 2
    table = list(csv.DictReader(cli("export", "notes", "-", "--format", "csv").out.splitlines()))
    assert [row["id"] for row in table] == [row["id"] for row in rows]


def check_merged(derived: dict[str, Any]) -> None:
    """Assert that this is the merged memory of the project `notes`, with its sources."""
    assert (derived["kind"], derived["abstraction_level"]) == ("merged", 1)
    assert "migrations" in derived["text"]
    assert sorted(source["external_id"] for source in derived["sources"]) == ["n0", "n1", "n2"]


@pytest.mark.usefixtures("consolidated")
def test_derived_rows_are_not_imported(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "whole.jsonl"
    assert cli("export", "notes", file, "--with-derived", "--json").json["derived"] == 1
    check_merged(json.loads(file.read_text().splitlines()[-1]))
    answer = cli("import", file, "--project", "copy", "--json")
    assert (answer.code, answer.json["added"], [row["line"] for row in answer.json["bad_rows"]]) == (1, 6, [7])


@pytest.mark.usefixtures("consolidated")
def test_csv_import_refuses_derived_rows(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "whole.csv"
    assert cli("export", "notes", file, "--format", "csv", "--with-derived", "--json").json["derived"] == 1
    with file.open(newline="") as lines:
        *raw, derived = csv.DictReader(lines)
    assert {row["id"] for row in raw} == {f"n{at}" for at in range(6)}
    assert {(row["text"], row["kind"], row["sources"]) for row in raw} == {("", "", "")}
    sources = json.loads(derived["sources"])
    check_merged({**derived, "abstraction_level": int(derived["abstraction_level"]), "sources": sources})
    answer = cli("import", file, "--project", "copy", "--json")
    assert (answer.code, answer.json["added"], answer.json["bad"]) == (1, 6, 1)
    assert "content" in answer.json["bad_rows"][0]["reason"]


def test_parquet_columns_are_typed(cli: Cli, write: Write, tmp_path: Path) -> None:
    cli("import", write(*ODD), "--project", "p", "--source", "s")
    file = tmp_path / "export.parquet"
    assert cli("export", "p", file, "--format", "parquet", "--json").json["memories"] == len(ODD)
    table = pq.read_table(file)
    types = {name: str(table.schema.field(name).type) for name in ("id", "tags", "success", "importance", "learned_at")}
    assert types == {
        "id": "string",
        "tags": "list<element: string>",
        "success": "bool",
        "importance": "double",
        "learned_at": "timestamp[us, tz=UTC]",
    }
    odd = next(row for row in table.to_pylist() if row["id"] == "odd-1")
    assert (odd["content"], odd["tags"], odd["files"]) == (ODD[0]["content"], ["a", "b, c"], ["src/a.py", "src/b.py"])
    assert (odd["success"], odd["importance"], odd["reused_count"]) == (False, 2.5, 7)
    assert odd["last_accessed_at"] == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert json.loads(odd["metadata"]) == ODD[0]["metadata"]
    assert [json.loads(odd[name]) for name in ("tool_usage", "error_patterns")] == ["12", ODD[0]["error_patterns"]]
    plain = next(row for row in table.to_pylist() if row["id"] == "lines")
    assert (plain["content"], plain["tags"], plain["success"]) == (ODD[3]["content"], [], None)


def test_parquet_is_written_in_row_groups(
    cli: Cli, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("import", write(*sample_rows(30)), "--project", "p")
    monkeypatch.setattr(export_formats, "_ROWS_IN_GROUP", 12)
    cli("export", "p", tmp_path / "export.parquet", "--format", "parquet")
    found = pq.ParquetFile(tmp_path / "export.parquet").metadata
    assert [found.row_group(at).num_rows for at in range(found.num_row_groups)] == [12, 12, 6]


@pytest.mark.usefixtures("consolidated")
def test_parquet_holds_derived_rows(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "whole.parquet"
    assert cli("export", "notes", file, "--format", "parquet", "--with-derived").code == 0
    *raw, derived = pq.read_table(file).to_pylist()
    assert [(row["content"] is None, row["sources"]) for row in raw] == [(False, None)] * 6
    assert derived["content"] is None
    check_merged(derived)


def test_parquet_of_empty_project_has_columns(cli: Cli, tmp_path: Path) -> None:
    cli("projects", "create", "empty")
    assert cli("export", "empty", tmp_path / "e.parquet", "--format", "parquet").code == 0
    table = pq.read_table(tmp_path / "e.parquet")
    assert (table.num_rows, table.column_names[:4]) == (0, ["source", "id", "memory_type", "content"])


@pytest.mark.slow
def test_parquet_is_written_to_pipe(settings: Settings, consolidated: dict[str, Any]) -> None:
    del settings, consolidated
    code = "from consolidation_pipeline.cli.app import main; main(['export', 'notes', '-', '--format', 'parquet'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert pq.read_table(pa.BufferReader(done.stdout)).num_rows == 6


def test_parquet_is_refused_for_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("projects", "create", "empty")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    answer = cli("export", "empty", "-", "--format", "parquet")
    assert (answer.code, answer.out, "parquet is binary" in answer.err) == (2, "", True)


def test_parquet_without_pyarrow_names_extra(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("projects", "create", "empty")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    answer = cli("export", "empty", tmp_path / "e.parquet", "--format", "parquet")
    assert (answer.code, list(tmp_path.glob("e.parquet*"))) == (2, [])
    assert "pip install 'consolidation-pipeline[parquet]'" in answer.err


def test_unknown_export_format_is_usage_error(cli: Cli, tmp_path: Path) -> None:
    cli("projects", "create", "empty")
    answer = cli("export", "empty", tmp_path / "e.xlsx", "--format", "xlsx", "--json")
    assert (answer.code, answer.json["error"]) == (2, "usage")
    assert "xlsx" in answer.err


def test_failed_export_keeps_existing_file(cli: Cli, tmp_path: Path) -> None:
    cli("projects", "create", "empty")
    file = tmp_path / "kept.jsonl"
    file.write_text("old")
    assert cli("export", "nowhere", file).code == 2
    assert file.read_text() == "old"
    assert cli("export", "empty", file).code == 0
    assert file.read_text() == ""
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("name", [".", "missing/folder/x.jsonl"])
def test_unwritable_export_file_is_usage_error(cli: Cli, tmp_path: Path, name: str) -> None:
    cli("projects", "create", "empty")
    answer = cli("export", "empty", tmp_path / name)
    assert (answer.code, "cannot write" in answer.err) == (2, True)


def test_export_to_device_keeps_device(cli: Cli) -> None:
    cli("projects", "create", "empty")
    assert cli("export", "empty", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
