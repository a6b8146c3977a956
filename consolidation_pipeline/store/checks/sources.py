"""Checks of the rows of connected stores."""

from __future__ import annotations

from consolidation_pipeline.store.checks.check import Check, select

_FIND_UNMIRRORED_ROWS = """
    SELECT s.name, r.key FROM consolidation.sources s JOIN consolidation.source_rows r ON r.source_id = s.id
    WHERE s.project_id = :project AND r.state IN ('mirrored', 'hidden') AND NOT EXISTS (
        SELECT FROM consolidation.task_memories t WHERE t.id = r.memory_id AND t.project_id = :project)
    -- The new row of a write, which a later one hid.
    AND NOT (r.state = 'hidden' AND EXISTS (
        SELECT FROM consolidation.consolidated_memories m WHERE m.id = r.memory_id AND m.project_id = :project))
"""

EVERY_ROW_HAS_A_MEMORY = Check(
    "every_row_has_a_memory",
    select(_FIND_UNMIRRORED_ROWS),
    "Every row that was read from a connected store has a memory.",
)

_FIND_UNEXPLAINED_HIDDEN_ROWS = """
    SELECT s.name, r.key FROM consolidation.sources s JOIN consolidation.source_rows r ON r.source_id = s.id
    WHERE s.project_id = :project AND r.state = 'hidden' AND NOT EXISTS (
        SELECT FROM consolidation.source_writes w
        WHERE w.source_id = s.id AND w.status IN ('written', 'gone') AND w.plan -> 'stamps' ? r.key)
"""

EVERY_HIDDEN_ROW_WAS_WRITTEN = Check(
    "every_hidden_row_was_written",
    select(_FIND_UNEXPLAINED_HIDDEN_ROWS),
    "Every row that is hidden in its store belongs to a written group, which can be undone.",
)
