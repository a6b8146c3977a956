"""The similarity graph and the groups formed from it: caches that can be rebuilt from the memories at any time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.store.ledger import copy_rows
from consolidation_pipeline.store.memories import lock_rows
from consolidation_pipeline.store.schema import SCHEMA
from consolidation_pipeline.store.vectors_io import Ids, Vectors, copy_pairs, load_pairs, load_vectors, to_ids

_GRAPH_TABLES = ("task_memories", "consolidated_memories")


@dataclass(frozen=True)
class Nodes:
    """What the graph compares: every raw memory that is not archived and every active merged memory.

    Raw memories that were merged stay nodes, so that a newcomer can be held against each source of a merged memory.
    Arrays of shape (n,), sorted by id: ids ``S16``; kind raw or merged; memory_type; repeats = hash of the normalised
    text; graph_version (-1 = not compared yet); merged_into ``S16`` (empty = in no merged memory); reused counts.
    """

    ids: Ids
    kind: npt.NDArray[np.str_]
    memory_type: npt.NDArray[np.str_]
    repeats: npt.NDArray[np.str_]
    graph_version: npt.NDArray[np.int64]
    merged_into: Ids
    reused: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: npt.NDArray[Any]) -> Nodes:
        """The nodes at ``rows`` (indices or mask)."""
        return Nodes(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def load_nodes(connection: Connection, project_id: UUID, model: str) -> Nodes:
    """All nodes of a project that have a vector of ``model``."""
    query = f"""
        SELECT id, 'raw', memory_type, normalized_hash, coalesce(graph_version, -1), consolidated_into_id, reused_count
        FROM {SCHEMA}.task_memories WHERE project_id = :project AND NOT is_archived AND embedding_model = :model
        UNION ALL
        SELECT id, 'merged', memory_type, normalized_hash, coalesce(graph_version, -1), NULL, reuse_count
        FROM {SCHEMA}.consolidated_memories
        WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL AND embedding_model = :model
        ORDER BY id
    """
    rows = connection.execute(text(query), {"project": project_id, "model": model}).all()
    columns = list(zip(*rows, strict=True)) if rows else [()] * 7
    return Nodes(
        to_ids(columns[0]),
        np.array(columns[1], dtype="U6"),
        np.array(columns[2], dtype="U20"),
        np.array(columns[3], dtype="U64"),
        np.array(columns[4], dtype=np.int64),
        np.array([b"" if u is None else u.bytes for u in columns[5]], dtype="S16"),
        np.array(columns[6], dtype=np.int64),
    )


def load_dimension(connection: Connection, project_id: UUID, model: str) -> int:
    """Length of the project's vectors of ``model``; 0 when there are none."""
    query = f"""
        SELECT embedding_dim FROM {SCHEMA}.task_memories
        WHERE project_id = :project AND embedding_model = :model AND NOT is_archived LIMIT 1
    """
    return int(connection.execute(text(query), {"project": project_id, "model": model}).scalar() or 0)


def load_node_vectors(connection: Connection, project_id: UUID, model: str, dimension: int) -> tuple[Ids, Vectors]:
    """Ids and vectors float32 (n, d) of all nodes, sorted by id as ``load_nodes`` sorts them."""
    return load_vectors(
        connection,
        f"SELECT id, embedding FROM {SCHEMA}.task_memories WHERE project_id = %(project)s AND NOT is_archived "
        "AND embedding_model = %(model)s UNION ALL "
        f"SELECT id, embedding FROM {SCHEMA}.consolidated_memories WHERE project_id = %(project)s AND kind = 'merged' "
        "AND retired_at IS NULL AND embedding_model = %(model)s ORDER BY id",
        {"project": project_id, "model": model},
        dimension=dimension,
    )


@dataclass(frozen=True)
class Calibration:
    """What grouping rests on between renewals. ``center`` float32 (d,), None = plain vectors."""

    version: int
    center: Vectors | None
    thresholds: Mapping[str, float]
    memories: int


def load_calibration(connection: Connection, project_id: UUID, model: str) -> Calibration | None:
    """The newest snapshot, or None when there is none yet."""
    row = connection.execute(
        text(
            f"SELECT version, center::text, thresholds, memories FROM {SCHEMA}.similarity_calibrations "
            "WHERE project_id = :project AND embedding_model = :model ORDER BY version DESC LIMIT 1"
        ),
        {"project": project_id, "model": model},
    ).one_or_none()
    if row is None:
        return None
    center = None if row[1] is None else np.array(json.loads(row[1]), dtype=np.float32)
    return Calibration(row[0], center, row[2], row[3])


def append_calibration(connection: Connection, project_id: UUID, model: str, snapshot: Calibration) -> None:
    """Store a new snapshot."""
    center = None if snapshot.center is None else json.dumps(snapshot.center.tolist())
    connection.execute(
        text(
            f"INSERT INTO {SCHEMA}.similarity_calibrations "
            "(project_id, embedding_model, version, center, thresholds, memories) VALUES "
            "(:project, :model, :version, CAST(:center AS vector), CAST(:thresholds AS jsonb), :memories)"
        ),
        {
            "project": project_id,
            "model": model,
            "version": snapshot.version,
            "center": center,
            "thresholds": json.dumps(dict(snapshot.thresholds)),
            "memories": snapshot.memories,
        },
    )


def clear_neighbors(connection: Connection, project_id: UUID, model: str) -> None:
    """Forget the whole graph of a project and model."""
    connection.execute(
        text(f"DELETE FROM {SCHEMA}.memory_neighbors WHERE project_id = :project AND embedding_model = :model"),
        {"project": project_id, "model": model},
    )


def prune_neighbors(connection: Connection, project_id: UUID, model: str) -> int:
    """Forget pairs of rows that moved or left since they were compared (their graph version is null)."""
    moved = " UNION ALL ".join(
        f"SELECT id FROM {SCHEMA}.{table} WHERE project_id = :project AND graph_version IS NULL"
        for table in _GRAPH_TABLES
    )
    connection.execute(text(f"CREATE TEMP TABLE moved ON COMMIT DROP AS {moved}"), {"project": project_id})
    connection.execute(text("ANALYZE moved"))
    pruned = 0
    for side in ("a", "b"):
        query = (
            f"DELETE FROM {SCHEMA}.memory_neighbors n USING moved "
            f"WHERE n.project_id = :project AND n.embedding_model = :model AND n.{side} = moved.id"
        )
        pruned += connection.execute(text(query), {"project": project_id, "model": model}).rowcount
    connection.execute(text("DROP TABLE moved"))
    return pruned


def append_neighbors(
    connection: Connection, project_id: UUID, model: str, a: Ids, b: Ids, similarity: npt.NDArray[np.float32]
) -> None:
    """Store pairs a < b of shape (m,): one binary COPY, one statement."""
    connection.execute(text("CREATE TEMP TABLE pairs (a uuid, b uuid, similarity real) ON COMMIT DROP"))
    copy_pairs(connection, "pairs (a, b, similarity)", a, b, similarity)
    connection.execute(
        text(
            f"INSERT INTO {SCHEMA}.memory_neighbors (project_id, embedding_model, a, b, similarity) "
            "SELECT :project, :model, a, b, similarity FROM pairs"
        ),
        {"project": project_id, "model": model},
    )
    connection.execute(text("DROP TABLE pairs"))
    # Readers in the same run come before autovacuum, and would be planned for an empty table.
    connection.execute(text(f"ANALYZE {SCHEMA}.memory_neighbors"))


def mark_compared(connection: Connection, ids: Iterable[UUID], version: int) -> None:
    """Remember that the neighbours of these rows are complete under calibration ``version``."""
    chosen = list(ids)
    for table in _GRAPH_TABLES:
        lock_rows(connection, table, "id = ANY(:ids)", {"ids": chosen})
        connection.execute(
            text(f"UPDATE {SCHEMA}.{table} SET graph_version = :version WHERE id = ANY(:ids)"),
            {"version": version, "ids": chosen},
        )


def load_neighbors(
    connection: Connection, project_id: UUID, model: str, threshold: float
) -> tuple[Ids, Ids, npt.NDArray[np.float32]]:
    """Pairs a, b ``S16`` (m,) and similarity float32 (m,) at or above ``threshold``, sorted by (a, b)."""
    return load_pairs(
        connection,
        f"SELECT a, b, similarity FROM {SCHEMA}.memory_neighbors WHERE project_id = %(project)s "
        "AND embedding_model = %(model)s AND similarity >= %(threshold)s ORDER BY a, b",
        {"project": project_id, "model": model, "threshold": threshold},
    )


@dataclass(frozen=True)
class Member:
    """One row of ``memory_clusters``."""

    tier: str
    cluster_key: str
    member_id: UUID
    member_kind: str
    similarity: float | None
    is_representative: bool
    details: Mapping[str, Any]


def replace_clusters(connection: Connection, project_id: UUID, job_id: UUID | None, members: Iterable[Member]) -> None:
    """Put the groups of this run in place of the last ones; nothing is written when they are the same."""
    connection.execute(
        text(f"CREATE TEMP TABLE formed (LIKE {SCHEMA}.memory_clusters INCLUDING DEFAULTS) ON COMMIT DROP")
    )
    names = (
        "project_id, tier, cluster_key, member_id, member_kind, similarity_to_representative, is_representative, "
        "details, job_id"
    )
    rows = (
        (project_id, m.tier, m.cluster_key, m.member_id, m.member_kind, m.similarity, m.is_representative,
         json.dumps(m.details), job_id)
        for m in members
    )  # fmt: skip
    copy_rows(connection, f"formed ({names})", rows)
    compared = names.removesuffix(", job_id")
    old = f"SELECT {compared} FROM {SCHEMA}.memory_clusters WHERE project_id = :project"
    new = f"SELECT {compared} FROM formed"
    differs = f"SELECT EXISTS (({old} EXCEPT {new}) UNION ALL ({new} EXCEPT {old}))"
    if connection.execute(text(differs), {"project": project_id}).scalar():
        connection.execute(
            text(f"DELETE FROM {SCHEMA}.memory_clusters WHERE project_id = :project"), {"project": project_id}
        )
        connection.execute(text(f"INSERT INTO {SCHEMA}.memory_clusters ({names}) SELECT {names} FROM formed"))
    connection.execute(text("DROP TABLE formed"))


def load_clusters(connection: Connection, project_id: UUID, tier: str) -> dict[str, list[Member]]:
    """The groups of a tier: cluster key -> members, the representative first, then by id."""
    rows = connection.execute(
        text(
            "SELECT tier, cluster_key, member_id, member_kind, similarity_to_representative, is_representative, "
            f"details FROM {SCHEMA}.memory_clusters WHERE project_id = :project AND tier = :tier "
            "ORDER BY cluster_key, is_representative DESC, member_id"
        ),
        {"project": project_id, "tier": tier},
    )
    groups: dict[str, list[Member]] = {}
    for row in rows:
        groups.setdefault(row.cluster_key, []).append(Member(*row))
    return groups
