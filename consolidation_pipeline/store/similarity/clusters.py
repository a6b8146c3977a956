"""Groups of the merge, suggest and pattern tiers: a cache that can be rebuilt from the memories at any time."""

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
    """One row of ``memory_clusters``; the representative's row has the details of the group."""

    tier: str
    cluster_key: str
    member_id: UUID
    member_kind: str
    similarity: float | None
    is_representative: bool
    details: Mapping[str, Any]


@dataclass(frozen=True)
class TierGroups:
    """The groups of one tier.

    By group (g,): ``keys`` and ``details``. By member (m,), group by group: ``groups``, the number of its group;
    ``ids`` S16; ``merged``, True for a merged memory; ``similarity``, its cosine with the representative; and
    ``is_representative``.
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
        """Yield the rows of the groups with these cluster keys; None = of all groups."""
        wanted = np.array([keys is None or key in keys for key in self.keys], dtype=bool)
        rows = np.flatnonzero(wanted[self.groups])
        columns = (self.groups[rows], self.merged[rows], self.similarity[rows], self.is_representative[rows])
        listed = zip(to_uuids(self.ids[rows]), *(column.tolist() for column in columns), strict=True)
        for id_, group, merged, similarity, first in listed:
            kind, details = "merged" if merged else "raw", self.details[group] if first else {}
            yield ClusterMember(self.tier, self.keys[group], id_, kind, similarity, first, details)


# A row without its details, as bytes that compare equal if the rows are equal. ``group``: MD5 of tier and cluster key.
_PACKED_ROW = np.dtype([("group", "V16"), ("member", "S16"), ("similarity", ">f4"), ("kind", ">i2")])
_LOAD_PACKED_ROWS = """
    SELECT string_agg(decode(md5(tier || cluster_key), 'hex') || uuid_send(member_id)
        || float4send(coalesce(similarity_to_representative, 'NaN'))
        || int2send((2 * (member_kind = 'merged')::integer + is_representative::integer)::smallint), '')
    FROM consolidation.memory_clusters WHERE project_id = %(project)s GROUP BY get_byte(uuid_send(member_id), 15)
"""
_LIST_KEYS = """
    SELECT tier, cluster_key FROM consolidation.memory_clusters WHERE project_id = %(project)s AND is_representative
"""


def find_changed_groups(
    connection: Connection, project_id: UUID, tiers: Sequence[TierGroups], *, without: Ids
) -> set[str]:
    """Return the cluster keys of the groups that differ between ``tiers`` and the stored rows; details do not count.

    Stored groups that are in none of ``tiers`` are among them, but for those of the members ``without``, S16 (k,).
    """
    bound = {"project": project_id}
    packed = f"V{_PACKED_ROW.itemsize}"
    (stored,) = load_packed_columns(connection, _LOAD_PACKED_ROWS, bound, {"row": packed})
    stored = stored[~np.isin(stored.view(_PACKED_ROW)["member"], without)]
    rows = np.concatenate([_pack_rows(one).view(packed) for one in tiers])
    differ = np.unique(np.setxor1d(rows, stored).view(_PACKED_ROW)["group"])
    if not len(differ):
        return set()
    digests = {digest.tobytes() for digest in differ}
    names = chain(fetch_rows(connection, _LIST_KEYS, bound), ((one.tier, key) for one in tiers for key in one.keys))
    return {key for tier, key in names if md5(f"{tier}{key}".encode()).digest() in digests}


def _pack_rows(groups: TierGroups) -> npt.NDArray[np.void]:
    """Return the rows (m,) of a tier as ``_LOAD_PACKED_ROWS`` selects them."""
    rows = np.zeros(len(groups.ids), dtype=_PACKED_ROW)
    names = b"".join(md5(f"{groups.tier}{key}".encode()).digest() for key in groups.keys)
    rows["group"], rows["member"] = np.frombuffer(names, dtype="V16")[groups.groups], groups.ids
    rows["similarity"], rows["kind"] = groups.similarity, 2 * groups.merged + groups.is_representative
    return rows


_DELETE_GROUPS = """
    DELETE FROM consolidation.memory_clusters WHERE project_id = :project
        AND (CAST(:changed AS text[]) IS NULL OR cluster_key = ANY(:changed))
"""
_COPY_MEMBERS = """consolidation.memory_clusters (project_id, tier, cluster_key, member_id, member_kind,
    similarity_to_representative, is_representative, details, job_id)"""


def replace_clusters(
    connection: Connection,
    project_id: UUID,
    job_id: UUID | None,
    members: Iterable[ClusterMember],
    *,
    changed: Collection[str] | None = None,
) -> None:
    """Replace the stored groups by ``members``.

    Args:
        changed: cluster keys of the groups to replace, with those that are deleted; ``members`` has no others. None =
            replace all groups.
    """
    keys = None if changed is None else list(changed)
    connection.execute(text(_DELETE_GROUPS), {"project": project_id, "changed": keys})
    rows = (
        (project_id, m.tier, m.cluster_key, m.member_id, m.member_kind, m.similarity, m.is_representative,
         json.dumps(m.details), job_id)
        for m in members
    )  # fmt: skip
    copy_rows(connection, _COPY_MEMBERS, rows)


_CREATE_NEW_DETAILS = "CREATE TEMP TABLE new_details (tier text, cluster_key text, details jsonb) ON COMMIT DROP"
_ANALYZE_NEW_DETAILS = "ANALYZE new_details"
_UPDATE_DETAILS = """
    UPDATE consolidation.memory_clusters c SET details = n.details, job_id = :job FROM new_details n
    WHERE c.project_id = :project AND c.tier = n.tier AND c.cluster_key = n.cluster_key AND c.is_representative
        AND c.details <> n.details
"""
_DROP_NEW_DETAILS = "DROP TABLE new_details"


def replace_details(
    connection: Connection,
    project_id: UUID,
    job_id: UUID | None,
    tiers: Iterable[TierGroups],
    *,
    written: Collection[str] = (),
) -> int:
    """Replace the details of the groups where they differ; return the number of groups that changed.

    After groups were merged nearly all of them differ, else nearly none. ``written``: keys of groups that this
    transaction has written whole.
    """
    rows = [
        (tier.tier, key, json.dumps(details))
        for tier in tiers
        for key, details in zip(tier.keys, tier.details, strict=True)
        if key not in written
    ]
    if not rows:
        return 0
    connection.execute(text(_CREATE_NEW_DETAILS))
    copy_rows(connection, "new_details", rows)
    connection.execute(text(_ANALYZE_NEW_DETAILS))
    changed = connection.execute(text(_UPDATE_DETAILS), {"project": project_id, "job": job_id}).rowcount
    connection.execute(text(_DROP_NEW_DETAILS))
    return changed


_MARK_MERGED = """
    UPDATE consolidation.memory_clusters SET details = details || '{"weakest_new_pair": null}'
    WHERE project_id = :project AND tier = 'merge' AND cluster_key = ANY(:keys) AND is_representative
"""


def mark_groups_merged(connection: Connection, project_id: UUID, keys: Collection[str]) -> None:
    """Store that no pair of these merge groups is about to be merged any more, by their cluster keys."""
    connection.execute(text(_MARK_MERGED), {"project": project_id, "keys": list(keys)})


_COUNT_GROUP_SIZES = """
    SELECT tier, size, count(*) FROM (
        SELECT tier, count(*) AS size FROM consolidation.memory_clusters WHERE project_id = :project
        GROUP BY tier, cluster_key) groups
    GROUP BY 1, 2 ORDER BY 1, 2
"""


def count_group_sizes(connection: Connection, project_id: UUID) -> dict[str, dict[int, int]]:
    """Return the number of groups by tier and size; tiers without groups are left out."""
    sizes: dict[str, dict[int, int]] = {}
    for tier, size, count in connection.execute(text(_COUNT_GROUP_SIZES), {"project": project_id}):
        sizes.setdefault(tier, {})[size] = count
    return sizes


_SUMMARIZE_COHESION = """
    SELECT avg((details ->> 'cohesion_mean')::float8), min((details ->> 'cohesion_min')::float8)
    FROM consolidation.memory_clusters WHERE project_id = :project AND tier = :tier AND is_representative
"""


def summarize_cohesion(connection: Connection, project_id: UUID, tier: str) -> tuple[float | None, float | None]:
    """Return the mean cohesion of the groups of a tier, and the lowest one; None without groups."""
    mean, lowest = connection.execute(text(_SUMMARIZE_COHESION), {"project": project_id, "tier": tier}).one()
    return mean, lowest


_LOAD_GROUP_KEYS = """
    SELECT member_id, cluster_key FROM consolidation.memory_clusters
    WHERE project_id = %(project)s AND tier = %(tier)s AND member_id = ANY(%(ids)s)
"""


def load_group_keys(connection: Connection, project_id: UUID, tier: str, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the cluster key of the group of a tier that each of the members ``ids`` is in, by member."""
    bound = {"project": project_id, "tier": tier, "ids": list(ids)}
    return dict(fetch_rows(connection, _LOAD_GROUP_KEYS, bound))


_LOAD_CLUSTERS = """
    SELECT cluster_key, member_id, member_kind, similarity_to_representative, is_representative, nullif(details, '{}')
    FROM consolidation.memory_clusters WHERE project_id = %(project)s AND tier = %(tier)s
    ORDER BY cluster_key, is_representative DESC, member_id
"""


def load_clusters(connection: Connection, project_id: UUID, tier: str) -> dict[str, list[ClusterMember]]:
    """Return the members of each group of a tier by cluster key: the representative first, then by id."""
    groups: dict[str, list[ClusterMember]] = {}
    for key, id_, kind, similarity, first, details in fetch_rows(
        connection, _LOAD_CLUSTERS, {"project": project_id, "tier": tier}
    ):
        member = ClusterMember(tier, key, id_, kind, similarity, first, details or {})
        groups.setdefault(key, []).append(member)
    return groups
