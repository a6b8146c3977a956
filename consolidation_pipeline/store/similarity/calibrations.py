"""Calibration snapshots: what grouping rests on between renewals."""

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

# Decisions are read for what they say about thresholds; the newest say it for the memories of today.
_MOST_DECISIONS = 1_000


@dataclass(frozen=True)
class Calibration:
    """What grouping rests on between renewals. ``center`` float32 (d,), None = plain vectors; ``boilerplate``:
    sentences, in normal form, left out before vectors are compared; ``options``: those it was taken under; ``report``:
    what it was derived from, as JSON values.
    """

    version: int
    center: Vectors | None
    thresholds: Mapping[str, float]
    memories: int
    boilerplate: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None

    @property
    def is_measured(self) -> bool:
        """Whether there was enough to measure; else the model's profile holds as it stands."""
        return "recommended" in self.report


def load_calibration(connection: Connection, project_id: UUID, model: str) -> Calibration | None:
    """The newest snapshot, or None when there is none yet."""
    row = connection.execute(
        text(
            "SELECT version, center::text AS center, thresholds, memories, boilerplate, options, report, created_at "
            "FROM consolidation.similarity_calibrations WHERE project_id = :project AND embedding_model = :model ORDER BY version DESC LIMIT 1"
        ),
        {"project": project_id, "model": model},
    ).one_or_none()
    if row is None:
        return None
    center = None if row.center is None else np.array(json.loads(row.center), dtype=np.float32)
    return Calibration(
        row.version,
        center,
        row.thresholds,
        row.memories,
        tuple(row.boilerplate),
        row.options,
        row.report,
        row.created_at,
    )


def append_calibration(connection: Connection, project_id: UUID, model: str, snapshot: Calibration) -> None:
    """Store a new snapshot."""
    center = None if snapshot.center is None else json.dumps(snapshot.center.tolist())
    connection.execute(
        text(
            "INSERT INTO consolidation.similarity_calibrations "
            "(project_id, embedding_model, version, center, thresholds, memories, boilerplate, options, report) VALUES "
            "(:project, :model, :version, CAST(:center AS vector), CAST(:thresholds AS jsonb), :memories, "
            ":boilerplate, CAST(:options AS jsonb), CAST(:report AS jsonb))"
        ),
        {
            "project": project_id,
            "model": model,
            "version": snapshot.version,
            "center": center,
            "thresholds": json.dumps(dict(snapshot.thresholds)),
            "memories": snapshot.memories,
            "boilerplate": list(snapshot.boilerplate),
            "options": json.dumps(dict(snapshot.options)),
            "report": json.dumps(dict(snapshot.report)),
        },
    )


def describe_versions(connection: Connection, project_id: UUID) -> str:
    """The newest version per model, as text: differs when a run would group by another snapshot."""
    query = """
        SELECT coalesce(string_agg(embedding_model || ' ' || newest, ', ' ORDER BY embedding_model), '') FROM (
            SELECT embedding_model, max(version) AS newest FROM consolidation.similarity_calibrations WHERE project_id = :project
            GROUP BY embedding_model) v
    """
    return str(connection.execute(text(query), {"project": project_id}).scalar_one())


def load_decisions(connection: Connection, project_id: UUID) -> list[tuple[list[UUID], bool]]:
    """The newest suggestions that a person decided on: their memories, and whether these were found to be the same."""
    rows = connection.execute(
        text(
            "SELECT original_memory_ids, status = 'validated' AS same FROM consolidation.consolidation_suggestions "
            "WHERE project_id = :project AND status IN ('validated', 'rejected') "
            "ORDER BY reviewed_at DESC NULLS LAST, id LIMIT :most"
        ),
        {"project": project_id, "most": _MOST_DECISIONS},
    )
    return [(list(row.original_memory_ids), row.same) for row in rows]


def load_decided_texts(connection: Connection, project_id: UUID) -> dict[UUID, str]:
    """Texts, by id, of the merged memories that a person decided on and that say now what they said then."""
    rows = connection.execute(
        text(
            "SELECT DISTINCT c.id, c.content FROM consolidation.consolidation_suggestions s, "
            "unnest(s.original_memory_ids, s.original_versions) AS o(id, version) "
            "JOIN consolidation.consolidated_memories c ON c.id = o.id AND (c.version = o.version OR NOT EXISTS ("
            "SELECT 1 FROM consolidation.consolidation_changes l WHERE l.entity_id = c.id AND l.version_after > o.version "
            "AND l.new_state ? 'content')) "
            "WHERE s.project_id = :project AND s.status IN ('validated', 'rejected')"
        ),
        {"project": project_id},
    )
    return {row.id: row.content for row in rows}


def find_disordered_thresholds(connection: Connection, project_id: UUID) -> list[str]:
    """Newest snapshots whose tiers are not in order, or not cosines."""
    tiers = ", ".join(f"(thresholds ->> '{name}')::float8" for name in ("t_merge", "t_suggest", "t_pattern"))
    rows = connection.execute(
        text(
            f"SELECT DISTINCT ON (embedding_model) embedding_model, version, ARRAY[{tiers}] AS tiers FROM consolidation.similarity_calibrations "
            "WHERE project_id = :project ORDER BY embedding_model, version DESC"
        ),
        {"project": project_id},
    )
    return [
        f"{row.embedding_model} version {row.version}: {row.tiers}"
        for row in rows
        if None in row.tiers or not 1.0 >= row.tiers[0] >= row.tiers[1] >= row.tiers[2] > 0.0
    ]
