"""Projects: owners of memories, with their options."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from consolidation_pipeline.core.id_prefixes import read_id
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.store.database.raw_connections import fetch_rows

_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Project:
    """A project. ``config``: the options that differ from the defaults."""

    id: UUID
    slug: str
    consolidation_enabled: bool
    config: Mapping[str, Any]


_CREATE_PROJECT = """
    INSERT INTO consolidation.projects (slug, config) VALUES (:slug, CAST(:config AS jsonb))
    RETURNING id, slug, consolidation_enabled, config
"""


def check_slug(slug: str) -> None:
    """Raise UsageError if no project may have this slug."""
    if not _SLUG.fullmatch(slug):
        raise UsageError(
            f"project {slug!r} is not allowed: use 1 to 63 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )


def create_project(connection: Connection, slug: str, config: Mapping[str, Any] | None = None) -> Project:
    """Create a project.

    Raises:
        UsageError: The slug is not allowed.
        ConflictError: A project has this slug already.
    """
    check_slug(slug)
    parameters = {"slug": slug, "config": json.dumps(dict(config or {}))}
    try:
        with connection.begin_nested():
            return Project(*connection.execute(text(_CREATE_PROJECT), parameters).one())
    except IntegrityError as error:
        raise ConflictError(f"project {slug} exists already", (slug,)) from error


_GET_PROJECT = "SELECT id, slug, consolidation_enabled, config FROM consolidation.projects WHERE slug = %(slug)s"
_LIST_FIRST_SLUGS = "SELECT slug FROM consolidation.projects ORDER BY slug LIMIT 20"


def get_project(connection: Connection, slug: str) -> Project:
    """Return the project with this slug.

    Raises:
        NotFoundError: There is none; the message lists existing projects.
    """
    # Postgres takes no text with a NUL character.
    found = [] if "\0" in slug else fetch_rows(connection, _GET_PROJECT, {"slug": slug})
    if not found:
        known = ", ".join(connection.scalars(text(_LIST_FIRST_SLUGS))) or "none"
        raise NotFoundError(f"there is no project {slug!r}; projects: {known}")
    return Project(*found[0])


# A slug may look like an id: the project with that slug comes first.
_FIND_PROJECT = """
    SELECT id, slug, consolidation_enabled, config FROM consolidation.projects
    WHERE slug = :slug OR id = :id ORDER BY slug = :slug DESC LIMIT 1
"""


def find_project(connection: Connection, reference: str) -> Project:
    """Return the project with this slug or, if none has it, with this id.

    Raises:
        NotFoundError: There is none; the message lists existing projects.
    """
    id_ = read_id(reference)
    if id_ is not None:
        row = connection.execute(text(_FIND_PROJECT), {"slug": reference, "id": id_}).one_or_none()
        if row is not None:
            return Project(*row)
    return get_project(connection, reference)


_LOAD_PROJECT_IDS = """
    SELECT id, project_id FROM consolidation.task_memories WHERE id = ANY(:ids)
    UNION SELECT id, project_id FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
    UNION SELECT id, project_id FROM consolidation.playbook_entries WHERE id = ANY(:ids)
    UNION SELECT id, project_id FROM consolidation.consolidation_suggestions WHERE id = ANY(:ids)
    UNION SELECT id, project_id FROM consolidation.memory_relations WHERE id = ANY(:ids)
    UNION SELECT id, project_id FROM consolidation.consolidation_jobs WHERE id = ANY(:ids)
    UNION SELECT id, project_id FROM consolidation.consolidation_changes WHERE id = ANY(:ids)
    UNION SELECT group_id, project_id FROM consolidation.consolidation_changes WHERE group_id = ANY(:ids)
"""


def load_project_ids(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return row id -> project id for memories, playbook entries, suggestions, relations, jobs, changes and groups."""
    return {row.id: row.project_id for row in connection.execute(text(_LOAD_PROJECT_IDS), {"ids": list(ids)})}


_LIST_PROJECTS = "SELECT id, slug, consolidation_enabled, config FROM consolidation.projects ORDER BY slug"


def list_projects(connection: Connection) -> list[Project]:
    """Return all projects by slug."""
    return [Project(*row) for row in connection.execute(text(_LIST_PROJECTS))]


_CONFIGURE_PROJECT = """
    UPDATE consolidation.projects
    SET config = CAST(:config AS jsonb), consolidation_enabled = :enabled, updated_at = now()
    WHERE slug = :slug RETURNING id, slug, consolidation_enabled, config
"""


def configure_project(
    connection: Connection, slug: str, *, config: Mapping[str, Any], consolidation_enabled: bool
) -> Project:
    """Replace the options of a project.

    Raises:
        NotFoundError: There is no such project.
    """
    parameters = {"slug": slug, "config": json.dumps(dict(config)), "enabled": consolidation_enabled}
    row = connection.execute(text(_CONFIGURE_PROJECT), parameters).one_or_none()
    return Project(*row) if row is not None else get_project(connection, slug)


# Caches without a foreign key.
_DELETE_CACHES = tuple(
    f"DELETE FROM consolidation.{table} WHERE project_id = :project"
    for table in ("memory_neighbors", "compared_memories", "relevance_scores")
)
_DELETE_PROJECT = "DELETE FROM consolidation.projects WHERE id = :project"


def delete_project(connection: Connection, project: Project) -> None:
    """Delete a project with all its rows but the ledger."""
    for statement in _DELETE_CACHES:
        connection.execute(text(statement), {"project": project.id})
    connection.execute(text(_DELETE_PROJECT), {"project": project.id})
