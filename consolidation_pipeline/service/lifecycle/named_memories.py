"""Memories that a person names by id: their project, and the reason that the person gives."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.knowledge.quarantine import OwnedMemory, list_owners
from consolidation_pipeline.store.projects import Project, find_project

MAX_REASON_CHARS = 500


def check_reason(reason: str | None) -> None:
    """Raise UsageError if a reason is too long for the ledger."""
    if reason is not None and len(reason) > MAX_REASON_CHARS:
        raise UsageError(f"the reason has {len(reason):,} characters; {MAX_REASON_CHARS} are allowed")


def find_named(
    connection: Connection, ids: Sequence[UUID], reference: str | None = None
) -> tuple[Project, dict[UUID, OwnedMemory]]:
    """Return the project of memories, and each of them by id.

    Args:
        ids: At least one.
        reference: Slug or id of the project that they must be of; None = any.

    Raises:
        NotFoundError: There is no such memory or project, or the memories are of another project.
        UsageError: The memories are of several projects.
    """
    found = {row.id: row for row in list_owners(connection, ids)}
    for id_ in ids:
        if id_ not in found:
            raise NotFoundError(f"there is no memory {id_}")
    slugs = sorted({row.project for row in found.values()})
    if len(slugs) > 1:
        raise UsageError(f"the memories are of several projects, {', '.join(slugs)}: give those of one")
    owner = find_project(connection, slugs[0])
    if reference is not None and find_project(connection, reference).id != owner.id:
        raise NotFoundError(f"there is no memory {ids[0]} in project {reference}")
    return owner, found
