"""`import`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from consolidation_pipeline_tests.cli.conftest import Cli, Write

GOOD = {"id": "a", "content": "Rotate the signing key every 90 days."}


def test_importing_twice_adds_nothing(cli: Cli, write: Write) -> None:
    path = write(GOOD, {"id": "b", "content": "Another."})
    first = cli("import", path, "--project", "p", "--format", "jsonl", "--json")
    assert (first.code, first.json["added"], first.json["unchanged"], first.json["bad"]) == (0, 2, 0, 0)
    assert first.json["source"] == "rows.jsonl"
    again = cli("import", path, "--project", "p", "--format", "jsonl", "--json")
    assert (again.code, again.json["added"], again.json["unchanged"]) == (0, 0, 2)
    assert cli("metrics", "p", "--json").json["memories"] == 2
    assert cli("import", path, "--project", "p").out == "p: 0 added, 2 there before, 0 bad\n"


def test_import_keeps_good_rows_and_lists_bad_rows(cli: Cli, write: Write, tmp_path: Path) -> None:
    path = write(GOOD, "not json", {"content": " "}, {"content": "x", "memory_type": "rumour"})
    answer = cli("import", path, "--project", "p", "--json")
    assert (answer.code, answer.json["added"], answer.json["bad"]) == (1, 1, 3)
    assert [row["line"] for row in answer.json["bad_rows"]] == [2, 3, 4]
    assert "rumour" in answer.json["bad_rows"][2]["reason"]
    assert "error: 3 bad rows were left out, the good ones are kept" in answer.err
    rejects = Path(answer.json["rejects_file"])
    assert rejects.is_relative_to(tmp_path)
    assert [json.loads(line)["line"] for line in rejects.read_text().splitlines()] == [2, 3, 4]
    assert cli("metrics", "p", "--json").json["memories"] == 1


def test_import_shows_first_twenty_reasons(cli: Cli, write: Write) -> None:
    rows = [{**GOOD, "memory_type": f"type {at}"} for at in range(25)]
    answer = cli("import", write(*rows), "--project", "p")
    assert (answer.code, answer.err.count("line ")) == (1, 20)
    assert "and 5 more reasons" in answer.err


def test_import_tells_each_reason_once(cli: Cli, write: Write) -> None:
    answer = cli("import", write(*["bad"] * 25), "--project", "p")
    assert answer.code == 1
    assert answer.err.count("lines 1, 2, 3, 4, 5 and 20 more: ") == 1
    assert "line 6" not in answer.err
    assert answer.out == "p: 0 added, 0 there before, 25 bad\n"
    assert "project p was created and is empty; `consolidation projects delete p` removes it" in answer.err


def test_import_refuses_changed_row(cli: Cli, write: Write) -> None:
    cli("import", write(GOOD), "--project", "p")
    answer = cli("import", write({**GOOD, "content": "Rotate the signing key every 30 days."}), "-p", "p", "--json")
    assert (answer.code, answer.json["added"]) == (1, 0)
    assert "stored before with other content" in answer.json["bad_rows"][0]["reason"]


def test_import_type_applies_to_rows_without_type(cli: Cli, write: Write) -> None:
    path = write(GOOD, {"content": "b", "memory_type": "decision"})
    assert cli("import", path, "--project", "p", "--type", "warning").code == 0
    assert cli("metrics", "p", "--json").json["by_type"] == {"decision": 1, "warning": 1}
    refused = cli("import", path, "--project", "q", "--type", "rumour")
    assert (refused.code, "error_fix, discovery" in refused.err) == (2, True)


def test_import_reads_standard_input(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(GOOD).encode())))
    answer = cli("import", "-", "--project", "p", "--source", "pipe", "--json")
    assert (answer.code, answer.json["added"], answer.json["source"]) == (0, 1, "pipe")


def test_import_detects_csv_by_name(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("id,content\n1,First\n2,Second\n")
    answer = cli("import", path, "--project", "p", "--json")
    assert (answer.json["format"], answer.json["added"]) == ("csv", 2)


def test_import_detects_markdown_file_and_folder(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / ".learnings" / "MEMORY.md"
    path.parent.mkdir()
    path.write_text("# Memory\n\n## Gotchas\n- The cache is shared.\n- Retry twice.\n\n## Decisions\nWe use uv.\n")
    answer = cli("import", path, "--project", "p", "--json")
    assert (answer.code, answer.json["format"], answer.json["source"]) == (0, "markdown", "MEMORY.md")
    assert answer.json["added"] == 3
    assert cli("metrics", "p", "--json").json["by_type"] == {"decision": 1, "warning": 2}
    path.write_text(path.read_text().replace("Retry twice", "Retry once"))
    again = cli("import", path.parent, "--project", "p", "--json")
    assert (again.json["format"], again.json["added"], again.json["unchanged"]) == ("markdown", 1, 2)
    (path.parent / "bad.md").write_bytes(b"- \xff\n")
    bad = cli("import", path.parent, "--project", "p", "--json")
    assert (bad.code, bad.json["bad_rows"][0]["line"]) == (1, 1)
    assert bad.json["bad_rows"][0]["reason"].startswith("bad.md: not valid UTF-8")


def test_import_tells_recognized_folder_and_skipped_files(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    note = folder / "cache.md"
    note.write_text("---\ntitle: Cache\ndate: 2026-01-02\n---\nThe cache holds 512 entries.\n")
    (folder / "index.md").write_text("- [Cache](cache.md)\n")
    first = cli("import", folder, "--project", "p")
    assert (first.code, first.out) == (0, "p: 1 added, 0 there before, 0 bad\n")
    assert first.err == (
        "recognised: folder of notes with front matter\nskipped 1 file:\n  index.md: an index: a list of links\n"
    )
    note.write_text(note.read_text().replace("512", "1,024"))
    assert cli("import", folder, "--project", "p").out == "p: 0 added, 1 revised, 0 there before, 0 bad\n"
    answer = cli("import", folder, "--project", "p", "--json").json
    assert (answer["format"], answer["revised"], answer["unchanged"]) == ("notes", 0, 1)
    assert answer["remarks"] == [{"file": "index.md", "text": "an index: a list of links", "is_skipped": True}]
    (folder / ".git").mkdir()
    hint = cli("import", folder, "--project", "q")
    assert "it also holds a folder of notes with front matter: import it with --format notes" in hint.err


@pytest.mark.parametrize(
    ("file", "format", "message"),
    [
        ("missing.jsonl", "jsonl", "cannot read"),
        ("missing.jsonl", "xml", "unknown format 'xml'"),
        ("missing", None, "cannot read missing: No such file"),
        ("notes.txt", None, "cannot tell the format"),
        (".", "markdown", "holds no notes"),
        (".", "git", "git cannot read the history"),
    ],
)
def test_unreadable_import_is_usage_error(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, format: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "notes.txt").touch()
    answer = cli("import", file, "--project", "p", *(("--format", format) if format else ()))
    assert (answer.code, message in answer.err) == (2, True), answer.err
    assert cli("projects", "list", "--json").json["projects"] == []


def test_import_tells_how_many_users_stay_apart(cli: Cli, write: Write) -> None:
    rows = [GOOD | {"id": user, "user_id": user} for user in ("ada", "bob", "cleo")]
    answer = cli("import", write(*rows, GOOD | {"id": "again", "user_id": "ada"}), "--project", "p")
    assert answer.out == "p: 4 added, 0 there before, 0 bad\n"
    assert (
        "3 scopes (user_id): their memories are never compared or merged with each other; 2 exact repeats stay apart"
        in answer.err
    )
    assert "consolidation projects configure p scope=project" in answer.err
    again = cli("import", write(*rows), "--project", "p", "--json").json
    assert (again["scope"], again["scopes"], again["repeats_apart"]) == ("user_id", 3, 2)


def test_import_scope_is_that_of_a_new_project(cli: Cli, write: Write) -> None:
    rows = write(GOOD | {"user_id": "ada"}, GOOD | {"id": "b", "user_id": "bob"})
    answer = cli("import", rows, "--project", "p", "--scope", "project")
    assert (answer.code, answer.err) == (0, "")
    assert cli("import", rows, "--project", "p", "--scope", "project").code == 0
    other = cli("import", rows, "--project", "p", "--scope", "user_id")
    assert other.code == 2
    assert "project p exists with scope = project, not user_id: leave --scope out, or change it" in other.err
    wrong = cli("import", rows, "--project", "q", "--scope", "team")
    assert wrong.code == 2
    assert "scope = 'team' is not allowed: expected project (no walls), or any of user_id" in wrong.err
    assert "q" not in cli("projects", "list").out
