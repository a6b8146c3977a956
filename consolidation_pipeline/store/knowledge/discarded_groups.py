"""Groups that gave no pattern or principle, with a hash of what was read."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import Connection, text

_LOAD = """
    SELECT cluster_key, units FROM consolidation.discarded_groups WHERE project_id = :project AND kind = :kind
"""


def load_discarded(connection: Connection, project_id: UUID, kind: str) -> dict[str, str]:
    """Return the hash of the units of each discarded group of a kind, by cluster key."""
    rows = connection.execute(text(_LOAD), {"project": project_id, "kind": kind})
    return {row.cluster_key: row.units for row in rows}


_REPLACE = """
    WITH discarded AS (
        SELECT cluster_key, units
        FROM unnest(CAST(:keys AS text[]), CAST(:units AS text[])) AS given(cluster_key, units)),
    removed AS (
        DELETE FROM consolidation.discarded_groups g WHERE project_id = :project AND kind = :kind
            AND NOT EXISTS (SELECT FROM discarded d WHERE d.cluster_key = g.cluster_key))
    INSERT INTO consolidation.discarded_groups AS known (project_id, kind, cluster_key, units)
    SELECT :project, :kind, cluster_key, units FROM discarded
    ON CONFLICT (project_id, kind, cluster_key) DO UPDATE SET units = excluded.units
    WHERE known.units <> excluded.units
"""


def replace_discarded(connection: Connection, project_id: UUID, kind: str, groups: Mapping[str, str]) -> None:
    """Store these groups, by the hash of their units, as the discarded ones of a kind."""
    bound = {"project": project_id, "kind": kind, "keys": list(groups), "units": list(groups.values())}
    connection.execute(text(_REPLACE), bound)
