"""The groups that a person is asked about: those of the similarity graph, and of their words what has no vector yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.grouping.linkage import complete_linkage
from consolidation_pipeline.core.knowledge.merge_proposals import fingerprint
from consolidation_pipeline.core.memories.memories import embedding_text
from consolidation_pipeline.core.similarity.term_similarity import T_TERMS, join_terms
from consolidation_pipeline.llm.prompts.suggestion import OriginalMemory
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection, Row
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, list_unembedded
from consolidation_pipeline.store.review.suggestions import load_originals
from consolidation_pipeline.store.similarity.clusters import ClusterMember, load_clusters

# Every text is compared with every other: 10,000 take 2 seconds, ten times as many would take minutes.
MAX_TERM_TEXTS = 10_000

_LESSONS = TEXT_COLUMNS.index("lessons_learned")
_BY_WORDS = "alike in their words; not compared by meaning, for they have no vectors yet"


@dataclass(frozen=True)
class SuggestGroup:
    """Memories that may say the same, the representative first. ``similarity``: the lowest cosine among them.

    ``by_words``: that is one of their words. ``reasons``: why a person decides, in words.
    """

    cluster_key: str
    members: Sequence[UUID]
    similarity: float | None
    reasons: tuple[str, ...]
    by_words: bool = False

    @property
    def rationale(self) -> str:
        """Why it is proposed, and why to a person."""
        alike = "" if self.similarity is None else f" (lowest similarity {self.similarity:.2f})"
        return f"{len(self.members)} memories may say the same{alike}; {'; '.join(self.reasons)}"


@dataclass(frozen=True)
class ProposableGroup:
    """A group all of whose members are active: what a model is shown of them, and their versions."""

    group: SuggestGroup
    originals: Sequence[tuple[UUID, int]]
    asked: Sequence[OriginalMemory]
    fingerprint: str

    @property
    def chars(self) -> int:
        """Characters of all texts."""
        return sum(len(one.text) for one in self.asked)


def load_suggest_groups(connection: Connection, run: ProjectRun) -> list[SuggestGroup]:
    """The suggest groups of the newest clusters, and those of the words of what has no vector; by their keys."""
    return [
        *read_suggest_groups(load_clusters(connection, run.project.id, "suggest")),
        *load_term_groups(connection, run),
    ]


def load_term_groups(connection: Connection, run: ProjectRun) -> list[SuggestGroup]:
    """The groups of the words of what has no vector yet."""
    waiting = to_uuids(list_unembedded(connection, run.project.id, "task_memories", run.embedder.name))
    return group_by_terms(connection, waiting, cross_type=run.options.cross_type)


def read_suggest_groups(clusters: Mapping[str, Sequence[ClusterMember]]) -> list[SuggestGroup]:
    """The groups of the suggest tier, whose representative has the reasons with it."""
    groups = []
    for key, members in clusters.items():
        ordered = sorted(members, key=lambda member: (not member.is_representative, member.member_id))
        details = ordered[0].details
        reasons = dict.fromkeys(reason for veto in details.get("vetoes", []) for reason in veto["conflicts"])
        groups.append(
            SuggestGroup(
                key, [m.member_id for m in ordered], details.get("cohesion_min"), tuple(reasons) or ("no veto",)
            )
        )
    return groups


def group_by_terms(connection: Connection, ids: Sequence[UUID], *, cross_type: bool) -> list[SuggestGroup]:
    """Groups of the active ones of these raw memories in which every two have a TF-IDF cosine of ``T_TERMS``.

    Of more than ``MAX_TERM_TEXTS`` the first by id are compared: vectors are on their way.
    """
    chosen = sorted(ids)[:MAX_TERM_TEXTS]
    rows = [row for _, row in sorted(load_originals(connection, chosen).items()) if row.is_active]
    if len(rows) < 2:
        return []
    pairs = join_terms([_parts(row) for row in rows])
    types = np.array([row.memory_type for row in rows])
    if not cross_type:
        pairs = pairs.select(types[pairs.i] == types[pairs.j])
    labels = complete_linkage(len(rows), pairs, T_TERMS)
    groups = []
    for group in list_members(labels):
        inside = (labels[pairs.i] == labels[group[0]]) & (labels[pairs.j] == labels[group[0]])
        ids_ = [rows[at].id for at in group.tolist()]
        lowest = round(float(pairs.similarity[inside].min()), 6)
        groups.append(SuggestGroup(cluster_key(ids_), ids_, lowest, (_BY_WORDS,), by_words=True))
    return groups


def select_proposable(groups: Iterable[SuggestGroup], found: Mapping[UUID, Row[Any]]) -> list[ProposableGroup]:
    """The groups all of whose members are there and active, the most similar first. ``found``: by load_originals."""
    opened = []
    for group in sorted(groups, key=lambda one: (-(one.similarity or 0.0), one.cluster_key)):
        rows = [found[id_] for id_ in group.members if id_ in found and found[id_].is_active]
        if len(rows) == len(group.members):
            name = fingerprint((row.id, row.content_hash) for row in rows)
            opened.append(
                ProposableGroup(group, [(row.id, row.version) for row in rows], [_asked(row) for row in rows], name)
            )
    return opened


def _parts(row: Row[Any]) -> tuple[str, str | None]:
    """Content and lessons of a memory."""
    if row.kind != "raw":
        return row.texts[0], None
    fields = dict(zip(TEXT_COLUMNS, row.texts, strict=True))
    return embedding_text(**{**fields, "lessons_learned": None}), row.texts[_LESSONS]


def _asked(row: Row[Any]) -> OriginalMemory:
    content, lessons = _parts(row)
    return OriginalMemory(content, (lessons or "").strip() or None, row.language)
