"""Projects: the owners of memories."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.store.schema import memory_neighbors, projects

_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Project:
    """One project: ``config`` holds the options that differ from the defaults."""

    id: UUID
    slug: str
    consolidation_enabled: bool
    config: Mapping[str, Any]


_columns = (projects.c.id, projects.c.slug, projects.c.consolidation_enabled, projects.c.config)


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
    row = connection.execute(select(*_columns).where(projects.c.slug == slug)).one_or_none()
    if row is None:
        known = ", ".join(connection.scalars(select(projects.c.slug).order_by(projects.c.slug).limit(20))) or "none"
        raise NotFoundError(f"there is no project {slug!r}; projects: {known}")
    return Project(*row)


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
