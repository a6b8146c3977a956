"""Memory folders of coding agents and notes with front matter: what is recognised, read and left out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from consolidation_pipeline.core.memories.memories import NewMemory
from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.formats import (
    default_source,
    find_other_formats,
    guess_format,
    read_rows,
)
from consolidation_pipeline.service.intake.readers.rows import BadRow, Remark, Row

CLAUDE_NOTE = """\
---
name: cache-size
description: How large the cache is
metadata:
  node_type: memory
  type: project
  originSessionId: 11-22
  modified: 2026-03-04T05:06:07.000Z
---

The cache holds 512 entries.

**Why:** the machine has 1 GB.
"""
CODEX_MEMORY = """\
# Task Group: releases of the shop

scope: cutting releases
applies_to: cwd=/shop; reuse_rule=safe

## Task 1: cut a release, success

### rollout_summary_files

- rollout_summaries/2026-05-01T10-00-00-abcd-release.md (thread_id=1)

### keywords

- release, tag

## User preferences

- Ask before a tag is pushed. [Task 1]
"""
SESSION = """\
# Session: 2026-02-11 09:31:05 UTC

- **Session Key**: agent:main:main
- **Session ID**: 5c-1

## Conversation Summary

user: which port?
"""
FOLDERS: dict[str, dict[str, str]] = {
    "claude-code": {
        "MEMORY.md": "# Memory\n\n- [Cache](cache_size.md) — its size\n- [Logs](logs.md)\n",
        "cache_size.md": CLAUDE_NOTE,
        "logs.md": "# Logs\n\n- The worker logs to `/var/log/worker.log`.\n- Traces are off.\n",
    },
    "codex": {
        "MEMORY.md": CODEX_MEMORY,
        "memory_summary.md": "v1\n\n## User Profile\n",
        "raw_memories.md": "# Raw Memories\n",
        "rollout_summaries/2026-05-01T10-00-00-abcd-release.md": (
            "thread_id: 0190\nupdated_at: 2026-05-01T11:00:00+00:00\ncwd: /shop\n\n"
            "# Release 2.1\n\nThe tree was clean.\n"
        ),
        "skills/a/SKILL.md": "---\nname: a\n---\nNo memory.\n",
    },
    "cursor": {
        ".cursor/rules/api.mdc": (
            "---\ndescription: Rules of the API\nglobs: src/api/**/*.ts, **/*.{ts,tsx}\nalwaysApply: false\n---\n"
            "# API\n\n- Validate input.\n- Return problems.\n"
        ),
        ".cursorrules": "You write Python 3.11.\n",
        "README.md": "# Shop\n\nNo rule.\n",
    },
    "openclaw": {
        "SOUL.md": "Be kind.\n",
        "MEMORY.md": "# Memory\n\n## People\n- Ada prefers mail.\n",
        "memory/2026-02-10.md": "# 2026-02-10\n\n## Decisions\n- Backups run at night.\n",
        "memory/2026-02-11-0931.md": SESSION,
    },
    "notes": {
        "2025-12-01 Postgres.md": (
            "---\ntitle: Postgres\ntags: [db, ops]\n---\nVacuum on Sundays.\n\n## Why\nIt is quiet.\n"
        ),
        "grid.md": "---\ndate: 2025-01-05\ntags: web, css\nstatus: done\n---\nGrid beats floats.\n",
        "index.md": "# All\n\n- [[grid]]\n- [[2025-12-01 Postgres]]\n",
        ".obsidian/plugin.md": "---\na: b\n---\nHidden.\n",
    },
}


def build(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return folder


def read(path: Path, format: str) -> tuple[dict[str, NewMemory], list[BadRow], list[Remark]]:
    """Return memories by external id, bad rows and remarks."""
    items = list(read_rows(path, format))
    memories = [parse_memory(item.fields, source="s") for item in items if isinstance(item, Row)]
    bad = [item for item in items if isinstance(item, BadRow)]
    return {one.external_id: one for one in memories}, bad, [item for item in items if isinstance(item, Remark)]


def describe(path: Path, format: str) -> list[tuple[str, Any, str]]:
    """Return path, goal and text of each memory."""
    memories, bad, _ = read(path, format)
    assert not bad
    return [(str(one.metadata["path"]), one.goal, one.execution_summary) for one in memories.values()]


@pytest.mark.parametrize("format", FOLDERS)
def test_folder_format_is_recognized(tmp_path: Path, format: str) -> None:
    folder = build(tmp_path / "copy", FOLDERS[format])
    assert guess_format(folder) == format
    assert find_other_formats(folder, format) == []
    assert default_source(folder, format) == f"{format}:copy"


def test_claude_notes_are_memories_and_index_is_not(tmp_path: Path) -> None:
    folder = build(tmp_path / "copy", FOLDERS["claude-code"])
    memories, bad, remarks = read(folder, "claude-code")
    note = memories["cache_size.md"]
    assert not bad
    assert remarks == [Remark("MEMORY.md", "an index: a list of links")]
    assert note.execution_summary == "The cache holds 512 entries.\n\n**Why:** the machine has 1 GB."
    assert (note.goal, note.tags, note.session_id) == ("How large the cache is", ("project",), "11-22")
    assert note.learned_at is not None
    assert note.learned_at.isoformat() == "2026-03-04T05:06:07+00:00"
    assert note.metadata["name"] == "cache-size"
    assert note.metadata["folder"] == str(folder)
    logs = [one for id_, one in memories.items() if id_.startswith("logs.md#")]
    assert [one.execution_summary for one in logs] == [
        "The worker logs to `/var/log/worker.log`.",
        "Traces are off.",
    ]
    assert {one.learned_at.timestamp() for one in logs if one.learned_at} == {1_700_000_000}


def test_codex_lessons_are_read_without_their_sources(tmp_path: Path) -> None:
    folder = build(tmp_path / "memories", FOLDERS["codex"])
    (folder / ".git").mkdir()
    assert guess_format(folder) == "codex"
    memories, _, remarks = read(folder, "codex")
    lesson, summary = memories.values()
    assert lesson.execution_summary == "Ask before a tag is pushed. [Task 1]"
    assert (summary.execution_summary, summary.session_id) == ("# Release 2.1\n\nThe tree was clean.", "0190")
    assert summary.metadata["cwd"] == "/shop"
    assert [remark.file for remark in remarks] == ["memory_summary.md", "raw_memories.md"]


def test_cursor_rules_keep_their_globs(tmp_path: Path) -> None:
    folder = build(tmp_path / "shop", FOLDERS["cursor"])
    assert describe(folder, "cursor") == [
        (".cursorrules", None, "You write Python 3.11."),
        (".cursor/rules/api.mdc", "Rules of the API > API", "Validate input."),
        (".cursor/rules/api.mdc", "Rules of the API > API", "Return problems."),
    ]
    memories, _, _ = read(folder / ".cursor" / "rules" / "api.mdc", "cursor")
    for memory in memories.values():
        assert memory.metadata["globs"] == ["src/api/**/*.ts", "**/*.{ts,tsx}"]
        assert memory.metadata["alwaysApply"] is False


def test_openclaw_days_date_their_memories(tmp_path: Path) -> None:
    folder = build(tmp_path / "claw", FOLDERS["openclaw"])
    memories, _, remarks = read(folder, "openclaw")
    facts = {one.execution_summary: one for one in memories.values()}
    day, session = facts["Backups run at night."], facts["## Conversation Summary\n\nuser: which port?"]
    assert "Ada prefers mail." in facts
    assert day.learned_at is not None
    assert day.learned_at.isoformat() == "2026-02-10T00:00:00+00:00"
    assert session.learned_at is not None
    assert (session.learned_at.isoformat(), session.session_id) == ("2026-02-11T09:31:05+00:00", "5c-1")
    assert remarks == [Remark("SOUL.md", "instructions of the agent, no memories")]
    assert guess_format(folder / "memory") == "openclaw"


def test_note_with_front_matter_is_one_memory(tmp_path: Path) -> None:
    folder = build(tmp_path / "vault", FOLDERS["notes"])
    memories, _, remarks = read(folder, "notes")
    first, second = memories["2025-12-01 Postgres.md"], memories["grid.md"]
    assert (first.goal, first.tags) == ("Postgres", ("db", "ops"))
    assert first.execution_summary == "Vacuum on Sundays.\n\n## Why\nIt is quiet."
    assert [one.learned_at.date().isoformat() for one in (first, second) if one.learned_at] == [
        "2025-12-01",
        "2025-01-05",
    ]
    assert second.metadata["status"] == "done"
    assert remarks == [Remark("index.md", "an index: a list of links")]
    assert len(memories) == 2


def test_repository_is_history_unless_it_is_a_memory(tmp_path: Path) -> None:
    folder = build(tmp_path / "shop", {**FOLDERS["cursor"], "CLAUDE.md": "- Use tabs.\n", ".git/HEAD": "x"})
    assert guess_format(folder) == "git"
    assert find_other_formats(folder, "git") == ["cursor", "claude-code"]
    assert describe(folder, "claude-code") == [("CLAUDE.md", None, "Use tabs.")]


@pytest.mark.parametrize(
    ("files", "format"),
    [
        ({"CLAUDE.md": "- a\n", "sub/CLAUDE.md": "- b\n", "README.md": "# x\n"}, "claude-code"),
        ({"AGENTS.md": "- a\n"}, "codex"),
        ({"AGENTS.md": "- a\n", "notes.md": "- b\n"}, "markdown"),
        ({"a.md": "---\ntitle: a\n---\nx", "b.md": "y", "c.md": "z"}, "markdown"),
        ({".claude/rules/tests.md": "---\npaths: [src/**]\n---\n- a\n", "docs/a.md": "x"}, "claude-code"),
        ({"projects/-shop/memory/MEMORY.md": "- a\n", "skills/x/SKILL.md": "---\nname: x\n---\n"}, "claude-code"),
    ],
)
def test_few_marks_are_enough_or_not(tmp_path: Path, files: dict[str, str], format: str) -> None:
    assert guess_format(build(tmp_path / "folder", files)) == format


def test_file_with_front_matter_is_a_note(tmp_path: Path) -> None:
    folder = build(tmp_path, {"a.md": "---\ntags: [x]\n---\nText.", "b.md": "Text.", "c.mdc": "x", ".cursorrules": "x"})
    formats = [guess_format(folder / name) for name in ("a.md", "b.md", "c.mdc", ".cursorrules")]
    assert formats == ["notes", "markdown", "cursor", "cursor"]
    assert describe(folder / "a.md", "notes") == [("a.md", None, "Text.")]


def test_odd_files_do_not_stop_the_others(tmp_path: Path) -> None:
    folder = build(tmp_path / "vault", {"good.md": "---\r\ntitle: t\r\n---\r\nOne\r\ntwo.\r\n", "empty.md": " \n"})
    (folder / "utf16.md").write_text("---\ntitle: u\n---\nWide text.", encoding="utf-16")
    (folder / "broken.md").write_text("---\ntitle: [open\n---\nStill read.")
    (folder / "binary.md").write_bytes(b"\0\1\2")
    (folder / "latin.md").write_bytes(b"fine\nGr\xfc\xdfe")
    (folder / "large.md").write_bytes(b"- line\n" * 300_000)
    (folder / "secret.md").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe.md")
    memories, bad, remarks = read(folder, "notes")
    assert {one.execution_summary for one in memories.values()} == {"One\ntwo.", "Wide text.", "Still read."}
    reasons = [f"{row.line} {row.reason.replace(str(folder), '..')}" for row in bad]
    link = "in a folder, links and whatever is no regular file are left out"
    assert reasons == [
        "1 binary.md: no text: it has NUL bytes",
        "1 large.md: 2.1 MB is no note: at most 2 MB; divide it",
        "2 latin.md: not valid UTF-8: byte 0xfc; save the file as UTF-8",
        f"1 cannot read ../pipe.md: {link}",
        f"1 cannot read ../secret.md: {link}",
    ]
    assert [(remark.file, remark.is_skipped) for remark in remarks] == [("broken.md", False), ("empty.md", True)]


@pytest.mark.parametrize("format", ["notes", "markdown"])
def test_file_with_odd_name_is_listed(tmp_path: Path, format: str) -> None:
    names = [b"bad\xff.md", b"line\nfeed.md", b"escape\x1b[31m.md"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("Text.")
    (tmp_path / "good ü.md").write_text("Text.")
    memories, bad, _ = read(tmp_path, format)
    assert len(memories) == 1
    assert sorted(row.reason.split(":")[0] for row in bad) == [
        r"'bad\udcff.md'",
        r"'escape\x1b[31m.md'",
        r"'line\nfeed.md'",
    ]


def test_ids_survive_edits_elsewhere(tmp_path: Path) -> None:
    folder = build(tmp_path / "copy", FOLDERS["claude-code"])
    before, _, _ = read(folder, "claude-code")
    (folder / "cache_size.md").write_text(CLAUDE_NOTE.replace("512", "1,024"))
    (folder / "logs.md").write_text("# Logs\n\n- New.\n- Traces are off.\n")
    after, _, _ = read(folder, "claude-code")
    assert len(set(before) & set(after)) == 2
    assert before["cache_size.md"].metadata["sha256"] != after["cache_size.md"].metadata["sha256"]
    moved, _, _ = read(folder.rename(tmp_path / "elsewhere"), "claude-code")
    assert set(moved) == set(after)


def test_links_among_facts_are_left_out(tmp_path: Path) -> None:
    items = "- [a](a.md) — more\n- Tests need a database.\n- @docs/b.md\n"
    text = f"# Memory\n\nFacts of the shop that hold for a while.\n\n{items}"
    folder = build(tmp_path / "copy", {**FOLDERS["claude-code"], "MEMORY.md": text})
    memories, _, remarks = read(folder, "claude-code")
    texts = {one.execution_summary for id_, one in memories.items() if id_.startswith("MEMORY.md#")}
    assert texts == {"Memory\n\nFacts of the shop that hold for a while.", "Tests need a database."}
    assert remarks == [Remark("MEMORY.md", "2 links to other files were left out", is_skipped=False)]


@pytest.mark.parametrize("format", ["claude-code", "codex", "cursor", "openclaw", "notes"])
def test_folder_without_such_files_is_refused(tmp_path: Path, format: str) -> None:
    folder = build(tmp_path / "other", {"a.txt": "x"})
    with pytest.raises(UsageError, match="holds no file of a"):
        list(read_rows(folder, format))
