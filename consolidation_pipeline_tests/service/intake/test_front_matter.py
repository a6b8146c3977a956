"""Front matter: YAML, what is not quite YAML, and what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.service.intake.readers.front_matter import MAX_CHARS, read_front_matter, read_header


@pytest.mark.parametrize(
    ("text", "values", "lines"),
    [
        ("---\ntitle: A\ntags: [x, y]\n---\nText", {"title": "A", "tags": ["x", "y"]}, 4),
        ("---\ndate: 2026-01-02\nat: 2026-01-02T03:04:05Z\n---\n", {"date": "2026-01-02"}, 4),
        (
            "---\nglobs: *.py, src/**/*.ts\nalwaysApply: true\n---\n",
            {"globs": "*.py, src/**/*.ts", "alwaysApply": True},
            4,
        ),
        ("---\n# a comment\ndescription:\n...\nText", {"description": None}, 4),
        ("---\n---\nText", {}, 2),
        ("---\n\nText after a rule.\n\n---\n", {}, 0),
        ("---\nNo key here\n---\n", {}, 0),
        ("---\ntitle: never closed\n", {}, 0),
        ("Text\n---\ntitle: A\n---\n", {}, 0),
        ("", {}, 0),
    ],
)
def test_front_matter_is_read(text: str, values: dict[str, Any], lines: int) -> None:
    front = read_front_matter(text)
    assert (front.lines, front.problem) == (lines, None)
    assert {key: front.values[key] for key in values} == values


@pytest.mark.parametrize(
    ("block", "values", "problem"),
    [
        ("name: [open\ntype: user", {"name": "[open", "type": "user"}, "is no YAML (line 3)"),
        ("about: one: two", {"about": "one: two"}, "is no YAML (line 2)"),
        ("a: &x [1]\nb: *x\nc: [*x, *x]", {"a": "&x [1]"}, "is no YAML"),
        ("key: " + "[" * 5_000, {}, "is no YAML"),
        ("# only\n- a list", {}, "is no list of keys and values"),
        ("key: " + "x" * MAX_CHARS, {}, "is longer than 20,000 characters"),
    ],
)
def test_odd_front_matter_is_told(block: str, values: dict[str, Any], problem: str) -> None:
    front = read_front_matter(f"---\n{block}\n---\nText")
    assert front.problem is not None
    assert front.problem.startswith(problem)
    assert values.items() <= front.values.items()
    assert front.lines == block.count("\n") + 3


def test_header_lines_are_front_matter() -> None:
    front = read_header("thread_id: 1-2\nupdated_at: 2026-01-02T03:04:05Z\n\n# Title\nkey: text\n")
    assert front.values == {"thread_id": "1-2", "updated_at": "2026-01-02T03:04:05Z"}
    assert front.lines == 3
    assert read_header("# Title\nkey: text\n").lines == 0


@given(st.text(alphabet="---\n:&*[]{}!|>#ab '\"\t", max_size=80))
def test_front_matter_accepts_any_text(text: str) -> None:
    front = read_front_matter(f"---\n{text}\n---\n")
    assert front.lines <= text.count("\n") + 3
