"""Contents and units: what is compared, and what stands together.

A content is one text of one memory type, with all its exact repeats. A unit is what merging makes of contents: those of
one merge group, or one left alone. Suggest and pattern groups are formed of units, so that near-duplicates count once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.grouping.cannot_link import CannotLink
from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.grouping.cohesion import summarize_groups
from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.grouping.linkage import complete_linkage, connected_components
from consolidation_pipeline.core.grouping.representatives import choose_representatives
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.core.similarity.similarity_join import SLACK, SimilarPairs
from consolidation_pipeline.core.vectors import positions_of
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import content_keys, load_grouping_nodes, type_keys
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_ids, to_uuids
from consolidation_pipeline.store.ledger.cannot_link import load_cannot_links
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.similarity_graph import ASK, MERGE, Neighbors, Nodes

Mask = npt.NDArray[np.bool_]
Verdicts = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Contents:
    """The raw memories of a project by content, and the graph between contents.

    ``nodes`` and their vectors ``x`` float32 (n, d) for grouping, sorted by id; ``of_row`` (n,) the content of each;
    ``pairs`` of contents, within one memory type unless ``cross_type``, and the ``verdict`` (m,) on each.
    """

    nodes: Nodes
    x: Vectors
    of_row: Labels
    pairs: SimilarPairs
    verdict: Verdicts

    @property
    def count(self) -> int:
        """How many contents there are."""
        return int(self.of_row.max(initial=-1)) + 1


@dataclass(frozen=True)
class Units:
    """What stands together, as arrays over the u units, in order of their first content.

    ``of_content`` (c,): unit of each content; ``of_row`` (n,): of each raw memory. ``representatives`` (u,): row of the
    raw memory that stands for the unit. ``ids`` ``S16`` (u,): the merged memory that it is or will be, where ``merged``
    (u,), else that raw memory.
    """

    of_content: Labels
    of_row: Labels
    representatives: Labels
    ids: Ids
    merged: Mask

    def __len__(self) -> int:
        return len(self.ids)


def load_contents(connection: Connection, run: ProjectRun) -> Contents:
    """The raw memories and the stored graph between their contents."""
    nodes, x = load_grouping_nodes(connection, run)
    lowest = run.thresholds["t_pattern"] - SLACK
    found = similarity_graph.load_neighbors(connection, run.project.id, run.embedder.name, lowest)
    return build_contents(run, nodes, x, found, apart=load_cannot_links(connection, run.project.id))


def build_contents(run: ProjectRun, nodes: Nodes, x: Vectors, found: Neighbors, *, apart: CannotLink) -> Contents:
    """The contents of ``nodes``, whose vectors for grouping are ``x`` (n, d), and the pairs ``found`` between them.

    Two contents are as similar as their most similar variants, and merge where any two of these would, unless a person
    wants them ``apart``: then it is for a person to decide.
    """
    apart = apart.among(nodes.ids)
    rows = positions_of(nodes.ids, apart.ids)
    of_row = _split_repeats(content_keys(nodes), rows, apart)
    one, other = positions_of(nodes.ids, found.a), positions_of(nodes.ids, found.b)
    kept = (one >= 0) & (other >= 0)
    if not run.options.cross_type:
        types = type_keys(nodes)
        kept &= types[one] == types[other]
    one[kept], other[kept] = of_row[one[kept]], of_row[other[kept]]
    kept &= one != other
    low, high = np.minimum(one, other)[kept], np.maximum(one, other)[kept]
    order = np.lexsort((-found.similarity[kept], high, low))
    low, high = low[order], high[order]
    first = np.flatnonzero((np.diff(low, prepend=-1) != 0) | (np.diff(high, prepend=-1) != 0))
    similarity, verdict = found.similarity[kept][order][first], found.verdict[kept][order]
    pairs = SimilarPairs(low[first].astype(np.int32), high[first].astype(np.int32), similarity)
    if first.size:
        verdict = np.maximum.reduceat(verdict, first)
        forbidden = CannotLink(of_row[rows], apart.merges, apart.parts).forbids(pairs.i, pairs.j)
        verdict[forbidden] = np.minimum(verdict[forbidden], ASK)
    return Contents(nodes, x, of_row, pairs, verdict)


def _split_repeats(of_row: Labels, rows: Labels, apart: CannotLink) -> Labels:
    """Contents (n,) in which exact repeats that are kept apart, ``rows`` of the nodes, are contents of their own."""
    if not len(rows):
        return of_row
    split = of_row.copy()
    sides = np.stack([apart.merges, of_row[rows], apart.parts], axis=1)
    distinct, side = np.unique(sides, axis=0, return_inverse=True)
    later = np.r_[False, (np.diff(distinct[:, :2], axis=0) == 0).all(axis=1)]
    number = np.where(later, of_row.max() + np.cumsum(later), -1)[side.reshape(-1)]
    split[rows[number >= 0]] = number[number >= 0]
    return np.unique(split, return_inverse=True)[1].reshape(-1)


def build_units(run: ProjectRun, contents: Contents) -> Units:
    """Every merge group and every content left alone. What was merged before stays together."""
    labels = _label_merge_groups(run, contents)
    alone = labels < 0
    labels[alone] = labels.max(initial=-1) + 1 + np.arange(alone.sum())
    of_content = renumber_labels(labels, 1)
    of_row = of_content[contents.of_row]
    representatives = _representatives(contents, of_row)
    ids, merged = _identities(run, contents.nodes, of_row, representatives)
    return Units(of_content, of_row, representatives, ids, merged)


def _label_merge_groups(run: ProjectRun, contents: Contents) -> Labels:
    """Merge group of each content (c,), -1 = alone."""
    initial = _label_merged(contents)
    if not run.options.merge:
        return initial
    free = contents.pairs.select(contents.verdict == MERGE)
    return complete_linkage(contents.count, free, run.thresholds["t_merge"], initial=initial)


def _label_merged(contents: Contents) -> Labels:
    """Group of each content (c,) that was merged before, -1 = it was not.

    After undoing and redoing, repeats of one content may stand behind several merged memories: these become one.
    """
    held = np.flatnonzero(contents.nodes.merged_into != b"")
    names, merged = np.unique(contents.nodes.merged_into[held], return_inverse=True)
    ends = contents.of_row[held].astype(np.int32), (contents.count + merged.reshape(-1)).astype(np.int32)
    behind = SimilarPairs(*ends, np.ones(len(held), dtype=np.float32))
    return connected_components(contents.count + len(names), behind, 1.0)[: contents.count]


def _representatives(contents: Contents, of_row: Labels) -> Labels:
    """Row of each unit's most reused memory; ties: most similar to the rest, then smallest id."""
    nodes = contents.nodes
    similar = summarize_groups(contents.x, of_row, minimum=False).mean_similarity
    return choose_representatives(of_row, nodes.reused, similar, nodes.ids)


def _identities(run: ProjectRun, nodes: Nodes, of_row: Labels, representatives: Labels) -> tuple[Ids, Mask]:
    """Id of each unit, and whether that is a merged memory: one that it has already, or one about to be made."""
    ids, sizes = nodes.ids[representatives].copy(), np.bincount(of_row, minlength=len(representatives))
    held = _held(nodes, of_row, len(ids))
    kept = (held != b"") & (sizes > 1)
    ids[kept] = held[kept]
    made = (held == b"") & (sizes > 1) & (sizes >= run.options.min_cluster_size) & run.options.merge
    order = np.argsort(of_row, kind="stable")
    ends = np.cumsum(sizes)
    for unit in np.flatnonzero(made).tolist():
        sources = to_uuids(nodes.ids[order[ends[unit] - sizes[unit] : ends[unit]]])
        ids[unit] = to_ids([consolidated_id(run.project.slug, "merged", sources, ALGORITHM_VERSION)])[0]
    return ids, kept | made


def _held(nodes: Nodes, of_row: Labels, units: int) -> Ids:
    """The merged memory (u,) that holds most of each unit's sources, of equals the smallest id; empty = none."""
    held = np.zeros(units, dtype="S16")
    rows = np.flatnonzero(nodes.merged_into != b"")
    if not rows.size:
        return held
    names, named = np.unique(nodes.merged_into[rows], return_inverse=True)
    key, count = np.unique(of_row[rows] * len(names) + named.reshape(-1), return_counts=True)
    order = np.lexsort((key, -count, key // len(names)))
    first = order[np.flatnonzero(np.diff(key[order] // len(names), prepend=-1))]
    held[key[first] // len(names)] = names[key[first] % len(names)]
    return held


def pair_units(contents: Contents, units: Units) -> tuple[SimilarPairs, Verdicts]:
    """Pairs of units by the similarity of their representatives, and the verdict on each."""
    unit_of = np.full(contents.count, -1, dtype=np.int64)
    unit_of[contents.of_row[units.representatives]] = np.arange(len(units))
    one, other = unit_of[contents.pairs.i], unit_of[contents.pairs.j]
    both = (one >= 0) & (other >= 0)
    low, high = np.minimum(one, other)[both], np.maximum(one, other)[both]
    pairs = SimilarPairs(low.astype(np.int32), high.astype(np.int32), contents.pairs.similarity[both])
    return pairs, contents.verdict[both]
