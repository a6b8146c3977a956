"""Languages and tools by name and file ending."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.technology_names import find_languages, find_tools


def test_languages_come_from_files_tags_and_text() -> None:
    assert find_languages("Ported from typescript.", ["Rust"], ["a/b.py", "c:\\x\\y.SQL", "Makefile"]) == {
        "TypeScript", "Rust", "Python", "SQL",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("Restart DOCKER and postgresql.", {"Docker", "Postgres"}),
        ("Run it with pm2, then npm.", {"PM2", "npm"}),
        ("The dockerfile of my-redis/redisson", set()),
        ("Express your wish. We go on.", set()),
        ("The API uses Express and React.", {"Express", "React"}),
        ("Can I top up by American Express?", set()),
    ],
)
def test_tools_are_whole_names(text: str, tools: set[str]) -> None:
    assert find_tools(text, []) == tools


def test_tool_may_be_a_tag() -> None:
    assert find_tools("", ["kafka", "billing"]) == {"Kafka"}
