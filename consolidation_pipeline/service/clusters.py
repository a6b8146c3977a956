"""Form the groups of the three tiers from the similarity graph: to merge, to ask about, on one topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core import clustering
from consolidation_pipeline.core.clustering import ALGORITHM_VERSION, Labels, cluster_key
from consolidation_pipeline.core.layout import map_svg, plane
from consolidation_pipeline.core.literals import conflicts
from consolidation_pipeline.core.similarity import SimilarPairs
from consolidation_pipeline.service.graph import variant_keys
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.service.units import (
    Unit,
    find_contents,
    find_vetoes,
    form_units,
    label_merge_groups,
    load_content_pairs,
    load_content_texts,
    load_raw_nodes,
    pair_units,
)
from consolidation_pipeline.store.graph import Member, Nodes, replace_clusters
from consolidation_pipeline.store.vectors_io import Vectors, to_uuids

# Vetoes listed per group: enough to show why, whatever the size of the group.
_SHOWN_VETOES = 10


@dataclass(frozen=True)
class Clusters:
    """What was found: groups and units per tier, pairs that a veto kept apart, and a map of the project (SVG)."""

    contents: int
    groups: dict[str, int]
    members: dict[str, int]
    sizes: dict[str, dict[int, int]]
    cohesion_mean: float | None
    cohesion_min: float | None
    pairs_vetoed: int
    map_svg: str | None


def form_clusters(run: ProjectRun) -> Clusters:
    """Form all groups of the project and put them in place of the last ones."""
    with run.engine.begin() as connection:
        nodes, x = load_raw_nodes(connection, run)
        of_content, contents = find_contents(nodes)
        pairs = load_content_pairs(connection, run, nodes, of_content)
        texts = load_content_texts(connection, nodes, contents, pairs, run.thresholds["t_suggest"])
        vetoes = find_vetoes(pairs.at_least(run.thresholds["t_merge"]), texts)
        labels = label_merge_groups(run, nodes, contents, of_content, pairs, vetoes)
        units = form_units(run, nodes, x, of_content, labels)
        unit_pairs = pair_units(pairs, of_content, units)
        members = [
            *_merge_members(nodes, x, units, of_content, run.options.min_cluster_size),
            *_suggest_members(run, x, units, unit_pairs, texts, of_content),
            *_pattern_members(run, x, units, unit_pairs),
        ]
        replace_clusters(connection, run.project.id, run.job_id, members)
    return _summary(members, len(contents), len(vetoes), _map(x, units, members))


def _merge_members(nodes: Nodes, x: Vectors, units: list[Unit], of_content: Labels, min_size: int) -> Iterator[Member]:
    variants = variant_keys(nodes, x)
    for unit in units:
        if unit.kind == "merged" and len(unit.rows) >= min_size:
            ids = to_uuids(nodes.ids[unit.rows])
            contents, similar = _content_similarities(x, unit.rows, of_content=of_content, variants=variants)
            merged = of_content[unit.rows[nodes.merged_into[unit.rows] != b""]]
            details = {
                "weakest_new_pair": _weakest(similar, ~np.isin(contents, merged)),
                **_cohesion(similar[~np.eye(len(similar), dtype=bool)]),
            }
            yield from _group("merge", x, unit.rows, ids, ["raw"] * len(ids), unit.representative, details)


def _content_similarities(
    x: Vectors, rows: npt.NDArray[np.int64], *, of_content: Labels, variants: Labels
) -> tuple[Labels, npt.NDArray[np.float64]]:
    """The k contents of the rows, and their cosines (k, k): those of their most similar variants."""
    distinct = rows[np.unique(variants[rows], return_index=True)[1]]
    distinct = distinct[np.argsort(of_content[distinct], kind="stable")]
    contents, starts = np.unique(of_content[distinct], return_index=True)
    wide = x[distinct].astype(np.float64)
    similar = np.maximum.reduceat(np.maximum.reduceat(wide @ wide.T, starts, axis=0), starts, axis=1)
    return contents, np.clip(similar, -1.0, 1.0)


def _weakest(similar: npt.NDArray[np.float64], new: npt.NDArray[np.bool_]) -> float | None:
    """Lowest cosine between a content that is about to be merged and any other of its group."""
    if not new.any() or len(similar) < 2:
        return None
    # A content's cosine with itself is 1 and so never the lowest.
    return _rounded(float(similar[new].min()))


def _cohesion(similarities: npt.NDArray[np.float64]) -> dict[str, float | None]:
    """Mean and minimum of the cosines between the contents of a merge group; None where it has but one."""
    if not similarities.size:
        return {"cohesion_mean": None, "cohesion_min": None}
    return {"cohesion_mean": _rounded(float(similarities.mean())), "cohesion_min": _rounded(float(similarities.min()))}


def _suggest_members(
    run: ProjectRun,
    x: Vectors,
    units: list[Unit],
    pairs: SimilarPairs,
    texts: dict[int, str],
    of_content: Labels,
) -> Iterator[Member]:
    threshold = run.thresholds["t_suggest"]
    for numbers in clustering.members_of(clustering.complete_linkage(len(units), pairs, threshold)):
        chosen = [units[number] for number in numbers]
        yield from _unit_group("suggest", x, chosen, {"vetoes": _veto_reasons(chosen, x, texts, of_content)})


def _veto_reasons(units: list[Unit], x: Vectors, texts: dict[int, str], of_content: Labels) -> list[dict[str, Any]]:
    """Which members conflict and in what, at most ``_SHOWN_VETOES``."""
    reasons: list[dict[str, Any]] = []
    for at, one in enumerate(units):
        for other in units[at + 1 :]:
            found = conflicts(texts[int(of_content[one.representative])], texts[int(of_content[other.representative])])
            if found and len(reasons) < _SHOWN_VETOES:
                similarity = float(x[one.representative] @ x[other.representative])
                reasons.append(
                    {
                        "a": str(one.id),
                        "b": str(other.id),
                        "similarity": round(similarity, 4),
                        "conflicts": [str(conflict) for conflict in found],
                    }
                )
    return reasons


def _pattern_members(run: ProjectRun, x: Vectors, units: list[Unit], pairs: SimilarPairs) -> Iterator[Member]:
    rows = np.array([unit.representative for unit in units], dtype=np.int64)
    labels = clustering.group(
        x[rows],
        pairs,
        method=run.options.cluster_method,
        threshold=run.thresholds["t_pattern"],
        min_size=run.options.min_pattern_size,
    )
    for numbers in clustering.members_of(labels):
        yield from _unit_group("pattern", x, [units[number] for number in numbers], {})


def _unit_group(tier: str, x: Vectors, units: list[Unit], details: dict[str, Any]) -> Iterator[Member]:
    rows = np.array([unit.representative for unit in units], dtype=np.int64)
    ids = [unit.id for unit in units]
    similar = clustering.mean_similarities(x, rows)
    chosen = clustering.choose_representative([0] * len(units), similar, ids)
    mean, minimum = clustering.cohesion(x, rows)
    details = {**details, "cohesion_mean": _rounded(mean), "cohesion_min": _rounded(minimum)}
    return _group(tier, x, rows, ids, [unit.kind for unit in units], int(rows[chosen]), details)


def _group(
    tier: str,
    x: Vectors,
    rows: npt.NDArray[np.int64],
    ids: list[UUID],
    kinds: list[str],
    representative: int,
    details: dict[str, Any],
) -> Iterator[Member]:
    key = cluster_key(ids, ALGORITHM_VERSION)
    similarity = clustering.similarity_to(x, rows, representative)
    for at, row in enumerate(rows.tolist()):
        first = row == representative
        yield Member(tier, key, ids[at], kinds[at], float(similarity[at]), first, details if first else {})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _map(x: Vectors, units: list[Unit], members: list[Member]) -> str | None:
    """A picture of the units: near each other when similar, coloured by pattern group."""
    if len(units) < 2:
        return None
    group_of = {m.member_id: m.cluster_key for m in members if m.tier == "pattern"}
    numbers = {key: at for at, key in enumerate(sorted(set(group_of.values())))}
    labels = np.array([numbers.get(group_of.get(unit.id, ""), -1) for unit in units], dtype=np.int64)
    return map_svg(plane(x[[unit.representative for unit in units]]), labels)


def _summary(members: list[Member], contents: int, vetoed: int, picture: str | None) -> Clusters:
    sizes: dict[str, Counter[str]] = {tier: Counter() for tier in ("merge", "suggest", "pattern")}
    for member in members:
        sizes[member.tier][member.cluster_key] += 1
    shown = [m.details for m in members if m.is_representative and m.tier == "merge"]
    means = [d["cohesion_mean"] for d in shown if d["cohesion_mean"] is not None]
    return Clusters(
        contents=contents,
        groups={tier: len(found) for tier, found in sizes.items()},
        members={tier: sum(found.values()) for tier, found in sizes.items()},
        sizes={tier: dict(sorted(Counter(found.values()).items())) for tier, found in sizes.items()},
        cohesion_mean=round(float(np.mean(means)), 4) if means else None,
        cohesion_min=min((d["cohesion_min"] for d in shown if d["cohesion_min"] is not None), default=None),
        pairs_vetoed=vetoed,
        map_svg=picture,
    )
