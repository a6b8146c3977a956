"""Raw memories that a person or an import edits or deletes: their columns, writer and scope."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.scope_keys import is_out_of_use, raw_scope_key
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS

# Columns that an edit may change.
EDITED_COLUMNS = (*TEXT_COLUMNS, "memory_type", "tags", "success", "importance", "metadata", "language")


@dataclass(frozen=True)
class StoredRevision:
    """A raw memory as it is stored.

    ``values``: by name of ``EDITED_COLUMNS``, and ``files``. ``scope_key``: None in a project without walls.
    ``is_deleted``: deleted, or in quarantine.
    """

    id: UUID
    version: int
    writer: str | None
    scope_key: str | None
    is_archived: bool
    is_deleted: bool
    values: dict[str, Any]


_LOAD_REVISIONS = compose(
    """
    SELECT id, version, writer, /* scope_key */ AS scope_key, is_archived, /* is_out_of_use */ AS is_deleted,
        /* columns */,
        ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = t.id ORDER BY path) AS files
    FROM consolidation.task_memories t WHERE project_id = :project AND id = ANY(:ids) ORDER BY id
    """,
    is_out_of_use=is_out_of_use(),
    columns=", ".join(f"{name}::text" if name == "language" else name for name in EDITED_COLUMNS),
)


def load_revisions(
    connection: Connection, project_id: UUID, ids: Collection[UUID], *, scope: str
) -> dict[UUID, StoredRevision]:
    """Return the raw memories of a project by id, archived and deleted ones too. ``scope``: the project's option."""
    statement = compose(_LOAD_REVISIONS, scope_key=raw_scope_key(scope))
    found = {}
    for row in connection.execute(text(statement), {"project": project_id, "ids": list(ids)}):
        values = {name: getattr(row, name) for name in (*EDITED_COLUMNS, "files")}
        found[row.id] = StoredRevision(
            row.id, row.version, row.writer, row.scope_key, row.is_archived, row.is_deleted, values
        )
    return found


_DELETE_GROUPS = """
    DELETE FROM consolidation.memory_clusters WHERE project_id = :project AND cluster_key IN (
        SELECT cluster_key FROM consolidation.memory_clusters WHERE project_id = :project AND member_id = ANY(:ids))
"""
_DELETE_GROUPING_VECTORS = """
    DELETE FROM consolidation.grouping_embeddings WHERE project_id = :project AND memory_id = ANY(:ids)
"""


def delete_groups_of(connection: Connection, project_id: UUID, ids: Sequence[UUID]) -> None:
    """Delete the groups of the last run that memories are in, and their grouping vectors: the next run makes both."""
    bound = {"project": project_id, "ids": list(ids)}
    connection.execute(text(_DELETE_GROUPS), bound)
    connection.execute(text(_DELETE_GROUPING_VECTORS), bound)
