"""Undo of everything that was ever done to a project."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline


def roll_back_everything(pipeline: Pipeline, slug: str = SLUG) -> None:
    """Roll back all changes of a project, newest first; assert that only the raw memories are left unchanged."""
    groups = pipeline.rows(
        "SELECT group_id FROM {s}.consolidation_changes c JOIN {s}.projects p ON p.id = c.project_id "
        "WHERE p.slug = :slug GROUP BY 1 ORDER BY max(seq) DESC",
        slug=slug,
    )
    for row in groups:
        try:
            pipeline.roll_back(row.group_id)
        except ConflictError as error:
            raise AssertionError("\n".join([str(error), *_describe_ledger(pipeline, row.group_id, error)])) from error
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


def _describe_ledger(pipeline: Pipeline, group: UUID, error: ConflictError) -> list[str]:
    """Return a line for each change of the rows in a group and in the conflicts of its rollback, oldest first."""
    query = """
        SELECT seq, id, group_id, job_id, operation, entity_type, entity_id, version_before, version_after, changed_by,
            reverts_change_id
        FROM {s}.consolidation_changes WHERE entity_id IN (
            SELECT entity_id FROM {s}.consolidation_changes WHERE group_id = :group OR id::text = ANY(:conflicts))
        ORDER BY seq
    """
    rows = pipeline.rows(query, group=group, conflicts=list(error.conflicts))
    return [f"group {group}", *(" ".join(map(str, row)) for row in rows)]
