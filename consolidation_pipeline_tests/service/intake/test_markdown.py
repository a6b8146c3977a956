"""Notes in Markdown: parts of a file that become memories, their attributes and their ids."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.formats import default_source, guess_format
from consolidation_pipeline.service.intake.readers.line_reader import MAX_LINE_BYTES
from consolidation_pipeline.service.intake.readers.markdown import read_markdown
from consolidation_pipeline.service.intake.readers.markdown_notes import parse_notes
from consolidation_pipeline.service.intake.readers.note_attributes import extract_attributes, guess_type, parse_title
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row
from consolidation_pipeline_tests.hypothesis_examples import examples


def parse_rows(text: str) -> list[Row]:
    found = list(parse_notes(text))
    assert not [row for row in found if isinstance(row, BadRow)]
    return [row for row in found if isinstance(row, Row)]


def goals_and_contents(text: str) -> list[tuple[object, object]]:
    return [(row.fields.get("goal"), row.fields["content"]) for row in parse_rows(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Only a paragraph\nof two lines.\n\nAnother.", [(None, "Only a paragraph\nof two lines.\n\nAnother.")]),
        ("# One\n\nText.\n\nMore.\n\n# Two\nText.", [(None, "One\n\nText.\n\nMore."), (None, "Two\n\nText.")]),
        ("One\n===\nText.\n\nTwo\n---\nOther.", [(None, "One\n\nText."), (None, "Two\n\nOther.")]),
        ("# Notes\n## Build\n### Cache\nIt is shared.", [("Build", "Cache\n\nIt is shared.")]),
        ("# A\n## B\nb\n# C\n## D\nd", [("A", "B\n\nb"), ("C", "D\n\nd")]),
        ("# A #\n- one\n- two\n  still two\n\n  and more", [("A", "one"), ("A", "two\nstill two\n\nand more")]),
        ("# A\n1. one\n2. two", [("A", "one"), ("A", "two")]),
        ("# A\n* one\n  - nested\n    - deeper\n+ two", [("A", "one\n- nested\n  - deeper"), ("A", "two")]),
        ("# A\nSome text.\n\n- one", [(None, "A\n\nSome text."), ("A", "one")]),
        ("# A\nIn tests:\n\n- one\n- two", [("A > In tests", "one"), ("A > In tests", "two")]),
        ("# A\n**To release:**\n1. tag\n2. push\n", [(None, "A\n\n**To release:**\n1. tag\n2. push")]),
        ("- no heading\n- at all", [(None, "no heading"), (None, "at all")]),
        ("# A\n> - quoted\n\n| a |\n|---|\n| 1 |", [(None, "A\n\n> - quoted\n\n| a |\n|---|\n| 1 |")]),
        ("---\nname: x\ntags:\n  - y\n---\n# A\nText.", [(None, "A\n\nText.")]),
        ("---\nNot: yaml\nbut text\n---\n\nText.", [(None, "Not: yaml but text\n\nText.")]),
        ("---\n\nText.\n\n---\n\nMore.", [(None, "Text.\n\nMore.")]),
        ("# A\n<!-- hidden\n\n# B -->\nText <!-- here --> too.", [(None, "A\n\nText  too.")]),
        ("# <!-- x --> **A**\nText.", [(None, "A\n\nText.")]),
        ("# Contents\n- [A](#a)\n  - [B](#b)\n# A\n## B\nText.", [("A", "B\n\nText.")]),
        ("# A\n## B\n\n***\n\n# C\n", []),
        ("# A\n- \n-\n\n  \n", []),
        ("", []),
    ],
)
def test_headings_and_list_items_become_notes(text: str, expected: Sequence[tuple[object, object]]) -> None:
    assert goals_and_contents(text) == expected
    assert goals_and_contents(text.replace("\n", "\r\n")) == expected


def test_note_has_line_number() -> None:
    assert [row.line for row in parse_rows("---\na: b\n---\n# A\n\nText.\n\n- one\n\n- two\n\n## B\nText.")] == [
        4,
        8,
        10,
        12,
    ]


CODE = "```sh\n# no heading\n- no item\nDate: 2026-01-02\n<!-- kept -->\n\n\n\n---\n```"


def test_code_block_is_kept_verbatim() -> None:
    (row,) = parse_rows(f"# A\nRun:\n\n{CODE}\n")
    assert row.fields["content"] == f"A\n\nRun:\n\n{CODE}"
    assert "created_at" not in row.fields
    indented = "\n".join(f"  {line}" if line else "" for line in CODE.split("\n"))
    (row,) = parse_rows(f"# A\n- Run\n{indented}\n")
    assert row.fields["content"] == f"Run\n{CODE}"


RECORD = """\
# Errors log

## [ERR-20260105-A1] correction

**Logged**: 2026-01-05T10:30:00Z
**Priority**: high
**Status**: wont_fix
**Area**: backend

### Summary
Pool size is per process.

### Details
- four workers
- five connections each

### Metadata
- Source: user_feedback
- Related Files: app/db.py, `app/pool.py`
- Tags: postgres, `pool`

---

## [ERR-20260106-A2] Migrations need a lock
**Logged**: 2026-01-06

### What worked
- an advisory lock
"""


def test_record_with_attributes_is_one_note() -> None:
    first, second = parse_rows(RECORD)
    assert first.fields == {
        "id": first.fields["id"],
        "content": "### Summary\nPool size is per process.\n\n### Details\n- four workers\n- five connections each",
        "memory_type": "error_fix",
        "created_at": "2026-01-05T10:30:00Z",
        "importance": 0.7,
        "tags": ["correction", "postgres", "pool", "backend"],
        "files": ["app/db.py", "app/pool.py"],
        "metadata": {"note_id": "ERR-20260105-A1", "source": "user_feedback", "status": "wont_fix"},
    }
    assert second.fields["content"] == "Migrations need a lock\n\n### What worked\n- an advisory lock"
    for row in (first, second):
        parse_memory(row.fields, source="ERRORS.md")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# Use uv\n## Status\naccepted\n## Context\npip is slow\n## Decision\nuv", 1),
        ("# Slow start\n**Date:** 2026-01-02\n\n## Cause\nimports\n## Lazy loading\nhelps", 1),
        ("# Memory\n**Date:** 2026-01-02\n\n## Python\nuv\n## Docker\nslim", 2),
        ("# Entry\n- **Type**: gotcha\n- **Content**: one\n- **Action**: two", 1),
        ("# Gotchas\n- **Docker**: one\n- **Postgres**: two", 2),
        ("# Gotchas\n- one\n  - Date: 2026-01-02\n- two", 2),
    ],
)
def test_attributes_make_heading_one_record(text: str, count: int) -> None:
    assert len(parse_rows(text)) == count


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("**Date**: 2026-01-02", {"created_at": "2026-01-02"}),
        ("**Logged:** 2026-01-02 10:00", {"created_at": "2026-01-02 10:00"}),
        ("- Date: 2026-01-02  ", {"created_at": "2026-01-02"}),
        ("Date: last week", {}),
        ("Type: gotcha", {"memory_type": "warning"}),
        ("memory_type: codebase_knowledge", {"memory_type": "codebase_knowledge"}),
        ("Type: opinion", {}),
        ("Tags: a, #b , `c d`,", {"tags": ["a", "b", "c d"]}),
        ("Tags: git tags are signed by whoever pushes", {}),
        ("Category: decision", {"tags": ["decision"], "memory_type": "decision"}),
        ("Priority: Critical", {"importance": 0.9}),
        ("Priority: ask Ann", {}),
        ("Status: in progress", {"metadata": {"status": "in progress"}}),
        ("Status: it worked at the second attempt", {}),
        ("Files: a.py, `b/c.py`", {"files": ["a.py", "b/c.py"]}),
        ("Files: all of them", {}),
        ("Cause: the cache", {}),
        ("https://example.org", {}),
        ("x: " + " " * 100_000 + "y", {}),
    ],
)
def test_line_is_attribute_only_if_value_is_valid(line: str, fields: dict[str, object]) -> None:
    assert extract_attributes([(line, False)]) == ([] if fields else [(line, False)], fields)
    assert extract_attributes([(line, True)]) == ([(line, True)], {})


def test_repeated_attribute_stays_as_text() -> None:
    kept, fields = extract_attributes([("Date: 2026-01-02", False), ("Date: 2026-01-03", False)])
    assert (kept, fields) == ([("Date: 2026-01-03", False)], {"created_at": "2026-01-02"})


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Decisions", "decision"),
        ("⚠️ Gotchas", "warning"),
        ("Known bugs", "bugfix"),
        ("Common Errors & Fixes", "error_fix"),
        ("knowledge: findings", "discovery"),
        ("error_fix", "error_fix"),
        ("codebase_knowledge", "codebase_knowledge"),
        ("Debugged prefixes", None),
        ("Why the error page has no style sheet", None),
        ("", None),
    ],
)
def test_short_heading_sets_memory_type(title: str, kind: str | None) -> None:
    assert guess_type(title) == kind


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("[LRN-20260105-001] best_practice", ("best_practice", {"metadata": {"note_id": "LRN-20260105-001"}})),
        ("2026-01-05: Release", ("Release", {"created_at": "2026-01-05"})),
        ("Release (2026-01-05)", ("Release", {"created_at": "2026-01-05"})),
        ("2026-01-05 10:30 — Ann", ("Ann", {"created_at": "2026-01-05T10:30"})),
        ("2026-13-05", ("2026-13-05", {})),
        ("[WIP] Cache:", ("[WIP] Cache", {})),
    ],
)
def test_heading_ids_and_dates_become_fields(title: str, expected: tuple[str, dict[str, object]]) -> None:
    assert parse_title(title) == expected


def test_heading_type_and_date_apply_to_notes_below() -> None:
    rows = parse_rows(
        "# Log\n## 2026-01-05\n### Decisions\n- one\n### Pitfalls of uv\nText.\n#### Bugs\n- two\n## Other\n- x"
    )
    message = [(row.fields.get("created_at"), row.fields.get("memory_type")) for row in rows]
    assert message == [("2026-01-05", kind) for kind in ("decision", "warning", "bugfix")] + [(None, None)]


def note_ids(text: str) -> list[object]:
    return [row.fields["id"] for row in parse_rows(text)]


def test_note_id_survives_changes_elsewhere() -> None:
    before = note_ids("# A\n- one\n- two\n## B\nText.")
    assert len(set(before)) == 3
    assert set(before) <= set(
        note_ids("New first.\n\n# A\n- zero\n- two\n- one\n\n<!-- x -->\n## New\n- x\n## B\n\nText.\n")
    )


def test_note_id_depends_on_text_and_heading() -> None:
    one, other_text, other_heading, repeat = note_ids("# A\n- one\n- One\n# B\n- one\n# A\n- one")
    assert one == repeat
    assert len({one, other_text, other_heading}) == 3


def test_invalid_utf8_rejects_only_its_note(tmp_path: Path) -> None:
    path = tmp_path / "NOTES.MD"
    path.write_bytes(b"\xef\xbb\xbf# A\n- one\n- caf\xe9\n- two\n")
    first, bad, last = read_markdown(path)
    assert (first.line, last.line) == (2, 4)
    assert bad == BadRow(3, "not valid UTF-8: byte 0xe9; save the file as UTF-8")


def test_unclosed_comment_is_reported() -> None:
    first, bad = parse_notes("# A\n- one\n\n<!-- TBD\n\n# B\nText.")
    assert isinstance(first, Row)
    assert bad == BadRow(4, "the comment <!-- is never closed, and hides all that follows")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no notes: a heading with text under it, a list or a paragraph is needed"),
        (b"# A\n<!-- nothing -->\n", "holds no notes"),
        (b"\x89PNG\r\n\x00\x1a", "is no text: line 2 has a NUL byte"),
        ("# Ä".encode("utf-16"), "is no text: line 1 has a NUL byte; save it as UTF-8"),
        (b"x" * MAX_LINE_BYTES + b"x", "longer than 20 MB"),
    ],
)
def test_file_without_notes_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as refused:
        list(read_markdown(path))
    assert str(path) in str(refused.value)


def test_folder_reads_nothing_outside_and_no_pipe(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (tmp_path / "secret").write_text("- a password\n")
    (folder / "AGENTS.md").write_text("- one\n")
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    (folder / "evil.md").symlink_to(tmp_path / "secret")
    (folder / "gone.md").symlink_to(tmp_path / "gone")
    os.mkfifo(folder / "pipe.md")
    read, *left_out = read_markdown(folder)
    assert isinstance(read, Row)
    assert (read.fields["content"], read.fields["source"]) == ("one", "AGENTS.md")
    assert [row.reason for row in left_out if isinstance(row, BadRow)] == [
        f"cannot read {folder / name}: in a folder, links and whatever is no regular file are left out"
        for name in ("evil.md", "gone.md", "pipe.md")
    ]


def test_folder_reads_each_markdown_file_as_source(tmp_path: Path) -> None:
    folder = tmp_path / ".learnings"
    for name in ("LEARNINGS.md", "old/x.markdown", "node_modules/y/README.md", "empty.md", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("" if name == "empty.md" else "- one\n")
    (folder / "bad.md").write_bytes(b"- \xff\n")
    (folder / "image.md").write_bytes(b"\0")
    (folder / "zipped.md.gz").write_bytes(gzip.compress(b"- one\n"))
    rows = list(read_markdown(folder))
    good = [row.fields for row in rows if isinstance(row, Row)]
    assert [fields["source"] for fields in good] == ["LEARNINGS.md", "old/x.markdown"]
    assert [row.reason.split(";")[0] for row in rows if isinstance(row, BadRow)] == [
        "bad.md: not valid UTF-8: byte 0xff",
        f"{folder / 'image.md'} is no text: line 1 has a NUL byte",
    ]
    assert (guess_format(folder), default_source(folder, "markdown")) == ("markdown", ".learnings")
    (alone,) = read_markdown(folder / "LEARNINGS.md")
    assert isinstance(alone, Row)
    assert alone.fields["id"] == good[0]["id"]
    assert default_source(folder / "LEARNINGS.md", "markdown") == good[0]["source"]


def test_folder_without_notes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot tell the format"):
        guess_format(tmp_path)
    with pytest.raises(UsageError, match="holds no notes"):
        list(read_markdown(tmp_path))


@settings(deadline=None, max_examples=examples(200))
@given(text=st.text("#-*>`: \n\t<!>[]()1.aé\udcff\r", max_size=80))
def test_markdown_reader_accepts_any_text(text: str) -> None:
    rows = list(parse_notes(text))
    assert all(1 <= row.line <= len(text) + 1 for row in rows)
    for row in rows:
        if isinstance(row, Row):
            parse_memory(row.fields, source="x")
