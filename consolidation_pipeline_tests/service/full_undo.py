"""Undo of everything that was ever done to a project."""

from __future__ import annotations

from collections.abc import Mapping

from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline


def roll_back_everything(pipeline: Pipeline, slug: str = SLUG) -> None:
    """Roll back all changes of a project, newest first; assert that only the raw memories are left unchanged."""
    groups = pipeline.rows(
        "SELECT group_id FROM {s}.consolidation_changes c JOIN {s}.projects p ON p.id = c.project_id "
        "WHERE p.slug = :slug GROUP BY 1 ORDER BY max(seq) DESC",
        slug=slug,
    )
    for row in groups:
        pipeline.roll_back(row.group_id)
    left: Mapping[str, str] = {
        "hidden, archived or pinned": "SELECT id FROM {s}.task_memories WHERE project_id = :id AND (is_consolidated "
        "OR is_archived OR pinned OR archive_reason IS NOT NULL)",
        "knowledge": "SELECT id FROM {s}.consolidated_memories WHERE project_id = :id",
        "playbook entries": "SELECT id FROM {s}.playbook_entries WHERE project_id = :id",
        "lineage": "SELECT child_id FROM {s}.memory_lineage l JOIN {s}.task_memories m ON m.id = l.parent_id "
        "WHERE m.project_id = :id",
    }
    found = {what: pipeline.rows(query, id=pipeline.project(slug).id) for what, query in left.items()}
    assert not any(found.values()), found
