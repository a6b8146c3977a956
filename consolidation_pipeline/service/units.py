"""Contents and units: what is compared, and what stands together.

A content is one text of one memory type, with all its exact repeats. A unit is what merging makes of contents: those of
one merge group, or one left alone. Suggest and pattern groups are formed of units, so that near-duplicates count once.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core import clustering
from consolidation_pipeline.core.clustering import ALGORITHM_VERSION, Labels
from consolidation_pipeline.core.literals import conflicts
from consolidation_pipeline.core.memories import consolidated_id
from consolidation_pipeline.core.similarity import SLACK, SimilarPairs
from consolidation_pipeline.service.graph import centered, load_graph_nodes, repeat_keys
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store import graph
from consolidation_pipeline.store.engine import Connection
from consolidation_pipeline.store.graph import Nodes
from consolidation_pipeline.store.memories import load_texts
from consolidation_pipeline.store.vectors_io import Vectors, to_uuids


@dataclass(frozen=True)
class Unit:
    """Contents that stand together: positions of its raw memories, of its representative, and its stored identity."""

    rows: npt.NDArray[np.int64]
    representative: int
    id: UUID
    kind: str


def load_raw_nodes(connection: Connection, run: ProjectRun) -> tuple[Nodes, Vectors]:
    """The raw nodes and their centred vectors, sorted by id."""
    snapshot = graph.load_calibration(connection, run.project.id, run.embedder.name)
    nodes, vectors = load_graph_nodes(connection, run)
    raw = nodes.kind == "raw"
    x = vectors[raw] if snapshot is None else centered(vectors[raw], snapshot)
    return nodes.select(raw), x


def find_contents(nodes: Nodes) -> tuple[Labels, Labels]:
    """Content of each node (n,), and for each content the position of its first node (c,)."""
    _, first, inverse = np.unique(repeat_keys(nodes), return_index=True, return_inverse=True)
    return inverse.astype(np.int64).reshape(-1), first.astype(np.int64)


def load_content_pairs(connection: Connection, run: ProjectRun, nodes: Nodes, of_content: Labels) -> SimilarPairs:
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


def load_content_texts(
    connection: Connection, nodes: Nodes, contents: Labels, pairs: SimilarPairs, threshold: float
) -> dict[int, str]:
    """Text of every content that has a neighbour at or above ``threshold``, by content."""
    close = pairs.at_least(threshold)
    wanted = np.unique(np.concatenate([close.i, close.j])).astype(np.int64)
    ids = to_uuids(nodes.ids[contents[wanted]])
    loaded = load_texts(connection, ids)
    return {int(content): loaded[id_] for content, id_ in zip(wanted, ids, strict=True)}


def find_vetoes(pairs: SimilarPairs, texts: dict[int, str]) -> set[tuple[int, int]]:
    """Pairs of contents whose literals conflict: a person decides on those."""
    return {(i, j) for i, j in zip(pairs.i.tolist(), pairs.j.tolist(), strict=True) if conflicts(texts[i], texts[j])}


def label_merge_groups(
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


def form_units(run: ProjectRun, nodes: Nodes, x: Vectors, of_content: Labels, labels: Labels) -> list[Unit]:
    """Every merge group and every content left alone, in order of their first content."""
    alone = labels < 0
    unit_of_content = labels.copy()
    unit_of_content[alone] = labels.max(initial=-1) + 1 + np.arange(alone.sum())
    order = np.argsort(unit_of_content[of_content], kind="stable")
    starts = np.flatnonzero(np.diff(unit_of_content[of_content][order])) + 1
    return [_unit(run, nodes, x, rows) for rows in np.split(order, starts) if rows.size]


def _unit(run: ProjectRun, nodes: Nodes, x: Vectors, rows: npt.NDArray[np.int64]) -> Unit:
    if len(rows) == 1:
        return Unit(rows, int(rows[0]), to_uuids(nodes.ids[rows])[0], "raw")
    ids = to_uuids(nodes.ids[rows])
    chosen = clustering.choose_representative(nodes.reused[rows], clustering.mean_similarities(x, rows), ids)
    into = nodes.merged_into[rows]
    if (into != b"").any():
        return Unit(rows, int(rows[chosen]), _largest(into), "merged")
    if run.options.merge and len(rows) >= run.options.min_cluster_size:
        merged = consolidated_id(run.project.slug, "merged", ids, ALGORITHM_VERSION)
        return Unit(rows, int(rows[chosen]), merged, "merged")
    return Unit(rows, int(rows[chosen]), ids[chosen], "raw")


def _largest(into: npt.NDArray[np.bytes_]) -> UUID:
    """The merged memory that holds most of the unit's sources; ties: the smallest id."""
    names, counts = np.unique(into[into != b""], return_counts=True)
    return to_uuids(names[[int(np.argmax(counts))]])[0]


def pair_units(pairs: SimilarPairs, of_content: Labels, units: list[Unit]) -> SimilarPairs:
    """Pairs of units by the similarity of their representatives."""
    unit_of = np.full(int(of_content.max(initial=-1)) + 1, -1, dtype=np.int64)
    for number, unit in enumerate(units):
        unit_of[of_content[unit.representative]] = number
    one, other = unit_of[pairs.i], unit_of[pairs.j]
    both = (one >= 0) & (other >= 0)
    low, high = np.minimum(one, other)[both], np.maximum(one, other)[both]
    return SimilarPairs(low.astype(np.int32), high.astype(np.int32), pairs.similarity[both])
