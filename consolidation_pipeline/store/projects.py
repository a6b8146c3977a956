"""Projects: the owners of memories."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, union, update
from sqlalchemy.exc import IntegrityError

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.store.database.schema import (
    consolidated_memories,
    consolidation_changes,
    consolidation_jobs,
    consolidation_suggestions,
    memory_neighbors,
    playbook_entries,
    projects,
    task_memories,
)

_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Project:
    """One project: ``config`` holds the options that differ from the defaults."""

    id: UUID
    slug: str
    consolidation_enabled: bool
    config: Mapping[str, Any]


_columns = (projects.c.id, projects.c.slug, projects.c.consolidation_enabled, projects.c.config)
_BY_SLUG = select(*_columns).where(projects.c.slug == bindparam("slug"))


def create_project(connection: Connection, slug: str, config: Mapping[str, Any] | None = None) -> Project:
    """A new project.

    Raises:
        UsageError: the slug is not allowed. ConflictError: it is taken.
    """
    if not _SLUG.fullmatch(slug):
        raise UsageError(
            f"project {slug!r} is not allowed: use 1 to 63 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    try:
        with connection.begin_nested():
            row = connection.execute(insert(projects).values(slug=slug, config=dict(config or {})).returning(*_columns))
            return Project(*row.one())
    except IntegrityError as error:
        raise ConflictError(f"project {slug} exists already", (slug,)) from error


def get_project(connection: Connection, slug: str) -> Project:
    """The project with this slug. Raises NotFoundError, naming the projects that exist."""
    row = connection.execute(_BY_SLUG, {"slug": slug}).one_or_none()
    if row is None:
        known = ", ".join(connection.scalars(select(projects.c.slug).order_by(projects.c.slug).limit(20))) or "none"
        raise NotFoundError(f"there is no project {slug!r}; projects: {known}")
    return Project(*row)


def find_project(connection: Connection, reference: str) -> Project:
    """The project with this slug or, where none has it, this id. Raises NotFoundError."""
    id_ = _as_id(reference)
    if id_ is not None:
        mine = or_(projects.c.slug == reference, projects.c.id == id_)
        found = connection.execute(
            select(*_columns).where(mine).order_by((projects.c.slug == reference).desc())
        ).first()
        if found is not None:
            return Project(*found)
    return get_project(connection, reference)


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def load_owners(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Row id -> id of its project, for memories of any kind, entries, suggestions, jobs, changes, groups."""
    parts = [
        select(column.label("id"), column.table.c.project_id).where(column.in_(ids))
        for column in (
            task_memories.c.id,
            consolidated_memories.c.id,
            playbook_entries.c.id,
            consolidation_suggestions.c.id,
            consolidation_jobs.c.id,
            consolidation_changes.c.id,
            consolidation_changes.c.group_id,
        )
    ]
    return {row.id: row.project_id for row in connection.execute(union(*parts))}


def list_projects(connection: Connection) -> list[Project]:
    """All projects by slug."""
    return [Project(*row) for row in connection.execute(select(*_columns).order_by(projects.c.slug))]


def configure_project(
    connection: Connection, slug: str, *, config: Mapping[str, Any], consolidation_enabled: bool
) -> Project:
    """Replace the project's configuration."""
    row = connection.execute(
        update(projects)
        .where(projects.c.slug == slug)
        .values(config=dict(config), consolidation_enabled=consolidation_enabled, updated_at=func.now())
        .returning(*_columns)
    ).one_or_none()
    return Project(*row) if row is not None else get_project(connection, slug)


def delete_project(connection: Connection, project: Project) -> None:
    """Remove the project with everything in it but the ledger."""
    connection.execute(delete(memory_neighbors).where(memory_neighbors.c.project_id == project.id))
    connection.execute(delete(projects).where(projects.c.id == project.id))
