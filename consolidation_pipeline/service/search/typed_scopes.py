"""Scopes as callers type them: a whole key, or its first values, such as the id of a user alone."""

from __future__ import annotations

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.scopes import complete_scope, list_prefixes
from consolidation_pipeline.service.search.hybrid_search import to_storable
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.scope_keys import has_walls
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline.store.search.context import has_scope, list_scopes

# Scopes that a message lists.
_LISTED = 5


def resolve_scope(engine: Engine, project: Project | str, typed: str | None) -> str | None:
    """Return the key of the one scope of a project that ``typed`` begins; a whole or unknown key, and None, as it is.

    Args:
        project: The project or its slug.
        typed: Key of a scope, or its first values: ``ada`` in a project that separates users and agents.

    Raises:
        UsageError: Several scopes begin so.
        NotFoundError: There is no such project.
    """
    if typed is None:
        return None
    typed = to_storable(typed)
    with engine.connect() as connection:
        owner = get_project(connection, project) if isinstance(project, str) else project
        option = parse_options(owner.config).scope
        prefixes = list_prefixes(typed, option)
        if not prefixes:
            return typed
        found = list_scopes(connection, owner.id, prefixes, option=option)
    if len(found) > 1:
        listed = ", ".join(map(repr, found[:_LISTED]))
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise UsageError(f"scope {typed!r} may be any of {len(found)} ({option}): give one of {listed}{more}")
    return found[0] if found else complete_scope(typed, option)


def tell_unknown_scope(engine: Engine, project: Project | str, key: str | None) -> str | None:
    """Return that no memory of a project has a scope; None if one has, or nothing is kept apart."""
    with autocommit_connection(engine) as connection:
        owner = get_project(connection, project) if isinstance(project, str) else project
        option = parse_options(owner.config).scope
        if not key or not has_walls(option) or has_scope(connection, owner.id, to_storable(key), option=option):
            return None
    return f"No memory of {owner.slug} has the scope {key!r}: check its name ({option})."


def is_named(key: str, project: Project, typed: str) -> bool:
    """Return True if the scope ``key`` may be meant by ``typed``: for callers that see no other scope."""
    return typed == key or key.startswith(list_prefixes(typed, parse_options(project.config).scope))
