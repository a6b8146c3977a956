"""Groups that a person decides on: those of the suggest tier, and memories without a vector that share their words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.grouping.linkage import complete_linkage
from consolidation_pipeline.core.knowledge.merge_proposals import measure_closeness
from consolidation_pipeline.core.similarity.term_similarity import T_TERMS, join_terms
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.review.suggestion_texts import split_text
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.similarity.clusters import ClusterMember

# Texts compared by their terms, each with all others: 10,000 take 2 seconds, 100,000 would take minutes.
MAX_TERM_TEXTS = 10_000

_BY_TERMS = "similar words; not compared by meaning, as they have no vectors yet"


@dataclass(frozen=True)
class SuggestGroup:
    """Ids of memories that may say the same (``members``), the representative first.

    ``similarity``: lowest cosine among them, of TF-IDF terms if ``by_terms``. ``if_same``: why a person is asked
    if they do not differ. ``confirmed``: the pair judge, which may not merge, says that two of them are the same.
    """

    cluster_key: str
    members: Sequence[UUID]
    similarity: float | None
    if_same: tuple[str, ...]
    by_terms: bool = False
    confirmed: bool = False

    def tell_rationale(self, kinds: Collection[str]) -> str:
        """Return the explanation of the proposal for the person who decides.

        Args:
            kinds: Of the differences, which are listed apart.
        """
        alike = "" if self.similarity is None else f" (lowest similarity {self.similarity:.2f})"
        remarks = [*(() if kinds and not self.by_terms else self.if_same)]
        remarks += ["the pair judge says the same"] if self.confirmed else []
        return "; ".join([f"{counted(len(self.members), 'memory')} may say the same{alike}", *remarks])

    def closeness(self, t_suggest: float) -> float:
        """Return how near the members are to each other, from 0.01 to 1; 1 if a judge confirmed two of them."""
        return 1.0 if self.confirmed else measure_closeness(self.similarity, T_TERMS if self.by_terms else t_suggest)


def read_suggest_groups(clusters: Mapping[str, Sequence[ClusterMember]]) -> list[SuggestGroup]:
    """Return the groups of the suggest tier, given their members by cluster key.

    The details of the representative hold the pairs of a group that a person decides on.
    """
    groups = []
    for key, members in clusters.items():
        ordered = sorted(members, key=lambda member: (not member.is_representative, member.member_id))
        ids, details = [member.member_id for member in ordered], ordered[0].details
        asked_pairs = details.get("asked_pairs", [])
        if_same = tuple(dict.fromkeys(asked["if_same"] for asked in asked_pairs if asked["if_same"]))
        similarity, confirmed = details.get("cohesion_min"), is_confirmed(asked_pairs)
        groups.append(SuggestGroup(key, ids, similarity, if_same, confirmed=confirmed))
    return groups


def is_confirmed(asked_pairs: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if the pair judge says that one of the pairs is the same."""
    return any(asked.get("judged") == "same" for asked in asked_pairs)


def group_by_terms(connection: Connection, ids: Sequence[UUID], *, options: ConsolidationOptions) -> list[SuggestGroup]:
    """Return groups of raw memories of one scope in which every two have a TF-IDF cosine of at least ``T_TERMS``.

    Memories that are not active are left out. Of more than ``MAX_TERM_TEXTS``, the first by id are compared. With
    ``cross_type``, a group may have memories of different types.
    """
    found = store.load_originals(connection, sorted(ids)[:MAX_TERM_TEXTS], scope=options.scope)
    rows = [row for _, row in sorted(found.items()) if row.is_active]
    if len(rows) < 2:
        return []
    pairs = join_terms([split_text(row) for row in rows])
    types, scopes = np.array([row.memory_type for row in rows]), np.array([row.scope_key or "" for row in rows])
    pairs = pairs.select(scopes[pairs.i] == scopes[pairs.j])
    if not options.cross_type:
        pairs = pairs.select(types[pairs.i] == types[pairs.j])
    labels = complete_linkage(len(rows), pairs, T_TERMS)
    groups = []
    for group in list_members(labels):
        inside = (labels[pairs.i] == labels[group[0]]) & (labels[pairs.j] == labels[group[0]])
        members = [rows[i].id for i in group.tolist()]
        lowest = round(float(pairs.similarity[inside].min()), 6)
        groups.append(SuggestGroup(cluster_key(members), members, lowest, (_BY_TERMS,), by_terms=True))
    return groups
