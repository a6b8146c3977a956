"""The groups formed from the similarity graph: a cache that can be rebuilt from the memories at any time."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.raw_connections import fetch_rows
from consolidation_pipeline.store.database.vector_copy import Ids, load_packed_columns, to_uuids
from consolidation_pipeline.store.ledger.ledger_writer import copy_rows


@dataclass(frozen=True)
class ClusterMember:
    """One row of ``memory_clusters``."""

    tier: str
    cluster_key: str
    member_id: UUID
    member_kind: str
    similarity: float | None
    is_representative: bool
    details: Mapping[str, Any]


@dataclass(frozen=True)
class TierGroups:
    """The groups of one tier as they were formed: ``keys`` and ``details`` by group (g,), and by member (m,), group by
    group: ``groups`` = its number, ``ids`` ``S16``, which are merged memories, cosine with the representative, and
    which is that.
    """

    tier: str
    keys: Sequence[str]
    details: Sequence[Mapping[str, Any]]
    groups: npt.NDArray[np.int64]
    ids: Ids
    merged: npt.NDArray[np.bool_]
    similarity: npt.NDArray[np.float32]
    is_representative: npt.NDArray[np.bool_]

    def members(self, keys: Collection[str] | None = None) -> Iterator[ClusterMember]:
        """The rows of the groups with one of these keys; None: of all."""
        wanted = np.array([keys is None or key in keys for key in self.keys], dtype=bool)
        rows = np.flatnonzero(wanted[self.groups])
        columns = (self.groups[rows], self.merged[rows], self.similarity[rows], self.is_representative[rows])
        listed = zip(to_uuids(self.ids[rows]), *(column.tolist() for column in columns), strict=True)
        for id_, group, merged, similarity, first in listed:
            kind, details = "merged" if merged else "raw", self.details[group] if first else {}
            yield ClusterMember(self.tier, self.keys[group], id_, kind, similarity, first, details)


_PLACE = np.dtype([("group", "V16"), ("member", "S16"), ("similarity", ">f4"), ("kind", ">i2")])


def _places(formed: TierGroups) -> npt.NDArray[np.void]:
    """The rows (m,) of a tier, but for their details, as ``_load_places`` gives them."""
    rows = np.zeros(len(formed.ids), dtype=_PLACE)
    names = b"".join(md5(f"{formed.tier}{key}".encode()).digest() for key in formed.keys)
    rows["group"], rows["member"] = np.frombuffer(names, dtype="V16")[formed.groups], formed.ids
    rows["similarity"], rows["kind"] = formed.similarity, 2 * formed.merged + formed.is_representative
    return rows.view(f"V{_PLACE.itemsize}")


def _load_places(connection: Connection, project_id: UUID) -> npt.NDArray[np.void]:
    query = """
        SELECT string_agg(decode(md5(tier || cluster_key), 'hex') || uuid_send(member_id)
            || float4send(coalesce(similarity_to_representative, 'NaN'))
            || int2send((2 * (member_kind = 'merged')::integer + is_representative::integer)::smallint), '')
        FROM consolidation.memory_clusters WHERE project_id = %(project)s GROUP BY get_byte(uuid_send(member_id), 15)
    """
    columns = load_packed_columns(connection, query, {"project": project_id}, {"place": f"V{_PLACE.itemsize}"})
    return columns[0]


def find_changed_groups(connection: Connection, project_id: UUID, tiers: Sequence[TierGroups]) -> set[str]:
    """Cluster keys of the groups whose rows, but for their details, are not stored as they are in ``tiers``, and of
    those stored that are no more.
    """
    places = np.concatenate([_places(one) for one in tiers])
    differ = np.unique(np.setxor1d(places, _load_places(connection, project_id)).view(_PLACE)["group"])
    if not len(differ):
        return set()
    query = "SELECT tier, cluster_key FROM consolidation.memory_clusters WHERE project_id = %(project)s"
    held = fetch_rows(connection, f"{query} AND is_representative", {"project": project_id})
    digests = {digest.tobytes() for digest in differ}
    names = chain(held, ((one.tier, key) for one in tiers for key in one.keys))
    return {key for tier, key in names if md5(f"{tier}{key}".encode()).digest() in digests}


def replace_clusters(
    connection: Connection,
    project_id: UUID,
    job_id: UUID | None,
    members: Iterable[ClusterMember],
    *,
    changed: Collection[str] | None = None,
) -> None:
    """Put the groups of this run in place of the last ones.

    ``changed``: the cluster keys that ``members`` have, and those that go; the groups of others stay. None: none stay.
    """
    connection.execute(
        text(
            "DELETE FROM consolidation.memory_clusters WHERE project_id = :project "
            "AND (CAST(:changed AS text[]) IS NULL OR cluster_key = ANY(:changed))"
        ),
        {"project": project_id, "changed": None if changed is None else list(changed)},
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
    copy_rows(connection, f"consolidation.memory_clusters ({names})", rows)


def replace_details(connection: Connection, project_id: UUID, job_id: UUID | None, tiers: Iterable[TierGroups]) -> int:
    """Put what is told of the groups in place of what was told last, where that differs: nearly everywhere after they
    were merged, else nearly nowhere. Returns of how many.
    """
    connection.execute(text("CREATE TEMP TABLE told (tier text, cluster_key text, details jsonb) ON COMMIT DROP"))
    rows = ((t.tier, key, json.dumps(told)) for t in tiers for key, told in zip(t.keys, t.details, strict=True))
    copy_rows(connection, "told", rows)
    connection.execute(text("ANALYZE told"))
    written = connection.execute(
        text(
            "UPDATE consolidation.memory_clusters c SET details = t.details, job_id = :job FROM told t "
            "WHERE c.project_id = :project AND c.tier = t.tier AND c.cluster_key = t.cluster_key "
            "AND c.is_representative AND c.details <> t.details"
        ),
        {"project": project_id, "job": job_id},
    ).rowcount
    connection.execute(text("DROP TABLE told"))
    return written


def load_group_details(connection: Connection, project_id: UUID, tier: str) -> dict[str, Mapping[str, Any]]:
    """What is told about each group of a tier, by its cluster key."""
    query = "SELECT cluster_key, details FROM consolidation.memory_clusters WHERE project_id = %(project)s"
    return dict(
        fetch_rows(
            connection, f"{query} AND tier = %(tier)s AND is_representative", {"project": project_id, "tier": tier}
        )
    )


def count_groups(connection: Connection, project_id: UUID, tier: str) -> int:
    """How many groups of a tier there are."""
    query = (
        "SELECT count(*) FROM consolidation.memory_clusters WHERE project_id = :project AND tier = :tier "
        "AND is_representative"
    )
    return int(connection.execute(text(query), {"project": project_id, "tier": tier}).scalar_one())


def load_clusters(connection: Connection, project_id: UUID, tier: str) -> dict[str, list[ClusterMember]]:
    """The groups of a tier: cluster key -> members, the representative first, then by id."""
    rows = connection.execute(
        text(
            "SELECT tier, cluster_key, member_id, member_kind, similarity_to_representative, is_representative, "
            "details FROM consolidation.memory_clusters WHERE project_id = :project AND tier = :tier "
            "ORDER BY cluster_key, is_representative DESC, member_id"
        ),
        {"project": project_id, "tier": tier},
    )
    groups: dict[str, list[ClusterMember]] = {}
    for row in rows:
        groups.setdefault(row.cluster_key, []).append(ClusterMember(*row))
    return groups
