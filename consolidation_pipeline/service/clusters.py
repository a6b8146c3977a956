"""Form the groups of the three tiers from the similarity graph.

What is grouped is *contents*: exact repeats of one type are one content. Contents that merge become one unit; suggest
and pattern groups are formed of units, each represented by one raw memory, so that near-duplicates count once.
"""

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
from consolidation_pipeline.core.memories import consolidated_id
from consolidation_pipeline.core.similarity import SLACK, SimilarPairs
from consolidation_pipeline.service.graph import centered, load_graph_nodes, repeat_keys, variant_keys
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store import graph
from consolidation_pipeline.store.engine import Connection
from consolidation_pipeline.store.graph import Member, Nodes
from consolidation_pipeline.store.memories import load_texts
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


@dataclass(frozen=True)
class _Unit:
    """Contents that stand together: positions of its raw memories, of its representative, and its stored identity."""

    rows: npt.NDArray[np.int64]
    representative: int
    id: UUID
    kind: str


def form_clusters(run: ProjectRun) -> Clusters:
    """Form all groups of the project and put them in place of the last ones."""
    with run.engine.begin() as connection:
        nodes, x = _load(connection, run)
        of_content, contents = _contents(nodes)
        pairs = _content_pairs(connection, run, nodes, of_content)
        texts = _texts(connection, nodes, contents, pairs, run.thresholds["t_suggest"])
        vetoes = _find_vetoes(pairs.at_least(run.thresholds["t_merge"]), texts)
        labels = _merge_labels(run, nodes, contents, of_content, pairs, vetoes)
        units = _units(run, nodes, x, of_content, labels)
        unit_pairs = _unit_pairs(pairs, of_content, units)
        members = [
            *_merge_members(nodes, x, units, of_content, run.options.min_cluster_size),
            *_suggest_members(run, x, units, unit_pairs, texts, of_content),
            *_pattern_members(run, x, units, unit_pairs),
        ]
        graph.replace_clusters(connection, run.project.id, run.job_id, members)
    return _summary(members, len(contents), len(vetoes), _map(x, units, members))


def _load(connection: Connection, run: ProjectRun) -> tuple[Nodes, Vectors]:
    """The raw nodes and their centred vectors, sorted by id."""
    snapshot = graph.load_calibration(connection, run.project.id, run.embedder.name)
    nodes, vectors = load_graph_nodes(connection, run)
    raw = nodes.kind == "raw"
    x = vectors[raw] if snapshot is None else centered(vectors[raw], snapshot)
    return nodes.select(raw), x


def _contents(nodes: Nodes) -> tuple[Labels, Labels]:
    """Content of each node (n,), and for each content the position of its first node (c,)."""
    _, first, inverse = np.unique(repeat_keys(nodes), return_index=True, return_inverse=True)
    return inverse.astype(np.int64).reshape(-1), first.astype(np.int64)


def _content_pairs(connection: Connection, run: ProjectRun, nodes: Nodes, of_content: Labels) -> SimilarPairs:
    """Pairs of contents i < j from the stored graph, within one memory type unless ``cross_type``.

    Two contents are as similar as their most similar variants.
    """
    lowest = run.thresholds["t_pattern"] - SLACK
    a, b, similarity = graph.load_neighbors(connection, run.project.id, run.embedder.name, lowest)
    both = np.isin(a, nodes.ids) & np.isin(b, nodes.ids)
    one, other = np.searchsorted(nodes.ids, a[both]), np.searchsorted(nodes.ids, b[both])
    same_type = (nodes.memory_type[one] == nodes.memory_type[other]) | run.options.cross_type
    one, other, kept = of_content[one[same_type]], of_content[other[same_type]], similarity[both][same_type]
    low, high = np.minimum(one, other), np.maximum(one, other)
    strongest = np.argsort(-kept, kind="stable")
    first = strongest[np.unique((low * max(len(nodes), 1) + high)[strongest], return_index=True)[1]]
    apart = first[low[first] != high[first]]
    return SimilarPairs(low[apart].astype(np.int32), high[apart].astype(np.int32), kept[apart])


def _texts(
    connection: Connection, nodes: Nodes, contents: Labels, pairs: SimilarPairs, threshold: float
) -> dict[int, str]:
    """Text of every content that has a neighbour at or above ``threshold``, by content."""
    close = pairs.at_least(threshold)
    wanted = np.unique(np.concatenate([close.i, close.j])).astype(np.int64)
    ids = to_uuids(nodes.ids[contents[wanted]])
    loaded = load_texts(connection, ids)
    return {int(content): loaded[id_] for content, id_ in zip(wanted, ids, strict=True)}


def _find_vetoes(pairs: SimilarPairs, texts: dict[int, str]) -> set[tuple[int, int]]:
    """Pairs of contents whose literals conflict: a person decides on those."""
    return {(i, j) for i, j in zip(pairs.i.tolist(), pairs.j.tolist(), strict=True) if conflicts(texts[i], texts[j])}


def _merge_labels(
    run: ProjectRun,
    nodes: Nodes,
    contents: Labels,
    of_content: Labels,
    pairs: SimilarPairs,
    vetoes: set[tuple[int, int]],
) -> Labels:
    """Merge group of each content (c,), -1 = alone. Contents that were merged before stay together."""
    initial = np.full(len(contents), -1, dtype=np.int64)
    merged = np.flatnonzero(nodes.merged_into != b"")
    initial[of_content[merged]] = np.unique(nodes.merged_into[merged], return_inverse=True)[1].reshape(-1)
    if not run.options.merge:
        return initial
    close = pairs.at_least(run.thresholds["t_merge"])
    free = np.array([pair not in vetoes for pair in zip(close.i.tolist(), close.j.tolist(), strict=True)], dtype=bool)
    return clustering.complete_linkage(len(contents), close.select(free), run.thresholds["t_merge"], initial=initial)


def _units(run: ProjectRun, nodes: Nodes, x: Vectors, of_content: Labels, labels: Labels) -> list[_Unit]:
    """Every merge group and every content left alone, in order of their first content."""
    alone = labels < 0
    unit_of_content = labels.copy()
    unit_of_content[alone] = labels.max(initial=-1) + 1 + np.arange(alone.sum())
    order = np.argsort(unit_of_content[of_content], kind="stable")
    starts = np.flatnonzero(np.diff(unit_of_content[of_content][order])) + 1
    return [_unit(run, nodes, x, rows) for rows in np.split(order, starts) if rows.size]


def _unit(run: ProjectRun, nodes: Nodes, x: Vectors, rows: npt.NDArray[np.int64]) -> _Unit:
    if len(rows) == 1:
        return _Unit(rows, int(rows[0]), to_uuids(nodes.ids[rows])[0], "raw")
    ids = to_uuids(nodes.ids[rows])
    chosen = clustering.choose_representative(nodes.reused[rows], clustering.mean_similarities(x, rows), ids)
    into = nodes.merged_into[rows]
    if (into != b"").any():
        return _Unit(rows, int(rows[chosen]), _largest(into), "merged")
    if run.options.merge and len(rows) >= run.options.min_cluster_size:
        merged = consolidated_id(run.project.slug, "merged", ids, ALGORITHM_VERSION)
        return _Unit(rows, int(rows[chosen]), merged, "merged")
    return _Unit(rows, int(rows[chosen]), ids[chosen], "raw")


def _largest(into: npt.NDArray[np.bytes_]) -> UUID:
    """The merged memory that holds most of the unit's sources; ties: the smallest id."""
    names, counts = np.unique(into[into != b""], return_counts=True)
    return to_uuids(names[[int(np.argmax(counts))]])[0]


def _unit_pairs(pairs: SimilarPairs, of_content: Labels, units: list[_Unit]) -> SimilarPairs:
    """Pairs of units by the similarity of their representatives."""
    unit_of = np.full(int(of_content.max(initial=-1)) + 1, -1, dtype=np.int64)
    for number, unit in enumerate(units):
        unit_of[of_content[unit.representative]] = number
    one, other = unit_of[pairs.i], unit_of[pairs.j]
    both = (one >= 0) & (other >= 0)
    low, high = np.minimum(one, other)[both], np.maximum(one, other)[both]
    return SimilarPairs(low.astype(np.int32), high.astype(np.int32), pairs.similarity[both])


def _merge_members(nodes: Nodes, x: Vectors, units: list[_Unit], of_content: Labels, min_size: int) -> Iterator[Member]:
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
    units: list[_Unit],
    pairs: SimilarPairs,
    texts: dict[int, str],
    of_content: Labels,
) -> Iterator[Member]:
    threshold = run.thresholds["t_suggest"]
    for numbers in clustering.members_of(clustering.complete_linkage(len(units), pairs, threshold)):
        chosen = [units[number] for number in numbers]
        yield from _unit_group("suggest", x, chosen, {"vetoes": _veto_reasons(chosen, x, texts, of_content)})


def _veto_reasons(units: list[_Unit], x: Vectors, texts: dict[int, str], of_content: Labels) -> list[dict[str, Any]]:
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


def _pattern_members(run: ProjectRun, x: Vectors, units: list[_Unit], pairs: SimilarPairs) -> Iterator[Member]:
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


def _unit_group(tier: str, x: Vectors, units: list[_Unit], details: dict[str, Any]) -> Iterator[Member]:
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


def _map(x: Vectors, units: list[_Unit], members: list[Member]) -> str | None:
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
