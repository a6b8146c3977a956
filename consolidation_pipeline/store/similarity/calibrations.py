"""Calibration snapshots: the mean, boilerplate and thresholds that grouping uses until the next calibration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.vector_copy import Vectors

# Decided suggestions that a calibration reads: the newest fit today's memories best.
_MAX_DECISIONS = 1_000


@dataclass(frozen=True)
class Calibration:
    """One calibration snapshot of a project and embedding model.

    ``center``: the project's mean vector, float32 (d,), None = vectors are compared as they are. ``thresholds``: by
    name. ``memories``: units when it was made. ``boilerplate``: sentences, normalised, that are left out before vectors
    are compared. ``options``: project options that it was made under. ``report``: measurements, as JSON values.
    """

    version: int
    center: Vectors | None
    thresholds: Mapping[str, float]
    memories: int
    boilerplate: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None


_LOAD_CALIBRATION = """
    SELECT version, center::text AS center, thresholds, memories, boilerplate, options, report, created_at
    FROM consolidation.similarity_calibrations
    WHERE project_id = :project AND embedding_model = :model ORDER BY version DESC LIMIT 1
"""


def load_calibration(connection: Connection, project_id: UUID, model: str) -> Calibration | None:
    """Return the newest snapshot; None if there is none yet."""
    row = connection.execute(text(_LOAD_CALIBRATION), {"project": project_id, "model": model}).one_or_none()
    if row is None:
        return None
    center = None if row.center is None else np.array(json.loads(row.center), dtype=np.float32)
    return Calibration(**{**row._mapping, "center": center, "boilerplate": tuple(row.boilerplate)})


_APPEND_CALIBRATION = """
    INSERT INTO consolidation.similarity_calibrations
        (project_id, embedding_model, version, center, thresholds, memories, boilerplate, options, report)
    VALUES (:project, :model, :version, CAST(:center AS vector), CAST(:thresholds AS jsonb), :memories, :boilerplate,
        CAST(:options AS jsonb), CAST(:report AS jsonb))
"""


def append_calibration(connection: Connection, project_id: UUID, model: str, snapshot: Calibration) -> None:
    """Store a new snapshot."""
    values = {
        "project": project_id,
        "model": model,
        "version": snapshot.version,
        "center": None if snapshot.center is None else json.dumps(snapshot.center.tolist()),
        "thresholds": json.dumps(dict(snapshot.thresholds)),
        "memories": snapshot.memories,
        "boilerplate": list(snapshot.boilerplate),
        "options": json.dumps(dict(snapshot.options)),
        "report": json.dumps(dict(snapshot.report)),
    }
    connection.execute(text(_APPEND_CALIBRATION), values)


_DESCRIBE_VERSIONS = """
    SELECT coalesce(string_agg(embedding_model || ' ' || newest, ', ' ORDER BY embedding_model), '') FROM (
        SELECT embedding_model, max(version) AS newest FROM consolidation.similarity_calibrations
        WHERE project_id = :project GROUP BY embedding_model) v
"""


def describe_versions(connection: Connection, project_id: UUID) -> str:
    """Return the newest version of each model as text: it changes when a run would use another snapshot."""
    return str(connection.execute(text(_DESCRIBE_VERSIONS), {"project": project_id}).scalar_one())


# Memories that a person keeps as variants of each other differ pair by pair.
_LOAD_DECISIONS = """
    SELECT ids, same FROM (
        SELECT original_memory_ids AS ids, status = 'validated' AS same, reviewed_at, id
        FROM consolidation.consolidation_suggestions
        WHERE project_id = :project AND status IN ('validated', 'rejected')
        UNION ALL
        SELECT ARRAY[a.id, b.id], false, s.reviewed_at, s.id
        FROM consolidation.consolidation_suggestions s, unnest(s.original_memory_ids) WITH ORDINALITY AS a(id, at),
            unnest(s.original_memory_ids) WITH ORDINALITY AS b(id, at)
        WHERE s.project_id = :project AND s.status = 'kept' AND a.at < b.at) decided
    ORDER BY reviewed_at DESC NULLS LAST, id, ids LIMIT :most
"""


def load_decisions(connection: Connection, project_id: UUID) -> list[tuple[list[UUID], bool]]:
    """Return the newest decided suggestions: their memories, and True if a person found them to be the same."""
    rows = connection.execute(text(_LOAD_DECISIONS), {"project": project_id, "most": _MAX_DECISIONS})
    return [(list(row.ids), row.same) for row in rows]


# A merged memory counts if its text is the one that the person saw: no later change wrote its content.
_LOAD_DECIDED_TEXTS = """
    SELECT DISTINCT c.id, c.content
    FROM consolidation.consolidation_suggestions s,
        unnest(s.original_memory_ids, s.original_versions) AS o(id, version)
        JOIN consolidation.consolidated_memories c ON c.id = o.id AND (c.version = o.version OR NOT EXISTS (
            SELECT 1 FROM consolidation.consolidation_changes l
            WHERE l.entity_id = c.id AND l.version_after > o.version AND l.new_state ? 'content'))
    WHERE s.project_id = :project AND s.status IN ('validated', 'rejected', 'kept')
"""


def load_decided_texts(connection: Connection, project_id: UUID) -> dict[UUID, str]:
    """Return by id the texts of merged memories in decided suggestions, if they are the texts that were decided on."""
    rows = connection.execute(text(_LOAD_DECIDED_TEXTS), {"project": project_id})
    return {row.id: row.content for row in rows}


_LIST_NEWEST_THRESHOLDS = """
    SELECT DISTINCT ON (embedding_model) embedding_model, version, ARRAY[(thresholds ->> 't_merge')::float8,
        (thresholds ->> 't_suggest')::float8, (thresholds ->> 't_pattern')::float8] AS tiers
    FROM consolidation.similarity_calibrations
    WHERE project_id = :project ORDER BY embedding_model, version DESC
"""


def find_disordered_thresholds(connection: Connection, project_id: UUID) -> list[str]:
    """Return the newest snapshots whose thresholds do not descend from t_merge to t_pattern, or are no cosines."""
    rows = connection.execute(text(_LIST_NEWEST_THRESHOLDS), {"project": project_id})
    return [
        f"{row.embedding_model} version {row.version}: {row.tiers}"
        for row in rows
        if None in row.tiers or not 1.0 >= row.tiers[0] >= row.tiers[1] >= row.tiers[2] > 0.0
    ]
