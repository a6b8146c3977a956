"""Marks that an import left of the file of a memory, by which a later import knows that the file was edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from consolidation_pipeline.store.database.engine import Connection

_LOAD = """
    SELECT id, metadata ->> 'sha256' AS sha256, metadata ->> 'folder' AS folder, is_archived
    FROM consolidation.task_memories WHERE project_id = :project AND id = ANY(:ids)
"""


@dataclass(frozen=True, slots=True)
class ImportMark:
    """The file of a memory when it was imported: SHA-256 and folder; null if the memory is of no memory folder."""

    sha256: str | None
    folder: str | None
    is_archived: bool


def load_import_marks(connection: Connection, project_id: UUID, ids: Sequence[UUID]) -> dict[UUID, ImportMark]:
    """Return the marks of these memories of a project."""
    rows = connection.execute(text(_LOAD), {"project": project_id, "ids": list(ids)})
    return {row.id: ImportMark(row.sha256, row.folder, row.is_archived) for row in rows}
