"""Scopes whose groups are complete, with a hash of what these were formed of."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import Connection, text

_LOAD = "SELECT scope, nodes FROM consolidation.grouped_scopes WHERE project_id = :project"


def load_grouped_scopes(connection: Connection, project_id: UUID) -> dict[UUID, str]:
    """Return the hash of the nodes of each scope whose groups are complete, by scope."""
    rows = connection.execute(text(_LOAD), {"project": project_id})
    return {row.scope: row.nodes for row in rows}


_REPLACE = """
    WITH complete AS (
        SELECT scope, nodes FROM unnest(CAST(:scopes AS uuid[]), CAST(:nodes AS text[])) AS given(scope, nodes)),
    removed AS (
        DELETE FROM consolidation.grouped_scopes g WHERE project_id = :project
            AND NOT EXISTS (SELECT FROM complete c WHERE c.scope = g.scope))
    INSERT INTO consolidation.grouped_scopes AS known (project_id, scope, nodes)
    SELECT :project, scope, nodes FROM complete
    ON CONFLICT (project_id, scope) DO UPDATE SET nodes = excluded.nodes WHERE known.nodes <> excluded.nodes
"""


def replace_grouped_scopes(connection: Connection, project_id: UUID, scopes: Mapping[UUID, str]) -> None:
    """Note that the groups of these scopes, by the hash of their nodes, are complete, and those of no others."""
    bound = {"project": project_id, "scopes": list(scopes), "nodes": list(scopes.values())}
    connection.execute(text(_REPLACE), bound)
