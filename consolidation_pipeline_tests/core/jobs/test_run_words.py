"""Words for what runs do."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.jobs.run_words import name_changes


@pytest.mark.parametrize(
    ("operation", "rule", "table", "word"),
    [
        ("edit", "edit", "playbook_entries", "playbook"),
        ("review", "review", "consolidation_suggestions", "suggestions"),
        ("associate", "supersedes", "memory_relations", "newer wins"),
        ("associate", "related", "memory_relations", "relations added"),
        ("summarize", "summary", "consolidated_memories", "summaries"),
        ("summarize", "procedural", "consolidated_memories", "profiles"),
        ("archive", "staleness", "task_memories", "archived"),
        ("restore", "restore", "task_memories", "restore"),
    ],
)
def test_changes_have_the_words_of_a_run(operation: str, rule: str, table: str, word: str) -> None:
    assert name_changes(operation, rule, table) == word
