"""Merge groups: contents, and the units that merging makes of them.

A content is one text of one memory type and scope, with all its exact repeats. A unit is a merge group of contents, or
a single content. Suggest and pattern groups are formed of units, so that near-duplicates count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

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
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import content_keys, scope_keys, type_keys
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_ids, to_uuids
from consolidation_pipeline.store.ledger.cannot_link import load_cannot_links
from consolidation_pipeline.store.review.suggestions import load_variants
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.similarity_graph import ASK, MERGE, TOPIC, Neighbors, Nodes

Mask = npt.NDArray[np.bool_]
Verdicts = npt.NDArray[np.int16]


@dataclass(frozen=True)
class PairRules:
    """Decisions of people on merges.

    ``cannot_link``: memories that must not be merged. ``variants``: those that must neither be merged nor asked about.
    """

    cannot_link: CannotLink
    variants: CannotLink


def load_pair_rules(connection: Connection, project_id: UUID) -> PairRules:
    """Return what people decided on merges of the project."""
    return PairRules(load_cannot_links(connection, project_id), load_variants(connection, project_id))


@dataclass(frozen=True)
class Contents:
    """Raw memories by content, and the graph between contents.

    ``nodes`` and their grouping vectors ``x`` float32 (n, d), sorted by id; d is 0 before they are loaded.
    ``content_of_row`` (n,): content of each node. ``pairs`` (m,): similar contents, of one memory type unless
    ``cross_type`` is on or a person is asked. ``verdict`` (m,): on each pair. ``total``: contents of the whole project.
    """

    nodes: Nodes
    x: Vectors
    content_of_row: Labels
    pairs: SimilarPairs
    verdict: Verdicts
    total: int

    @property
    def count(self) -> int:
        """Number of contents."""
        return int(self.content_of_row.max(initial=-1)) + 1

    def select(self, rows: npt.NDArray[np.int64], x: Vectors) -> Contents:
        """Return the contents of the nodes at ``rows`` (k,), with their vectors (k, d)."""
        chosen, numbers = np.unique(self.content_of_row[rows], return_inverse=True)
        number = np.full(self.count, -1, dtype=np.int32)
        number[chosen] = np.arange(len(chosen))
        i, j = number[self.pairs.i], number[self.pairs.j]
        inside = (i >= 0) & (j >= 0)
        pairs = SimilarPairs(i[inside], j[inside], self.pairs.similarity[inside])
        return Contents(self.nodes.select(rows), x, numbers.reshape(-1), pairs, self.verdict[inside], self.total)


@dataclass(frozen=True)
class Units:
    """The units, arrays of shape (u,), in the order of their first content.

    ``unit_of_content`` (c,) and ``unit_of_row`` (n,): unit of each content and of each raw memory. ``representatives``:
    row of the raw memory that represents the unit. ``merged``: True for a merged memory, existing or about to be made.
    ``ids`` S16: id of the merged memory, else of the raw memory.
    """

    unit_of_content: Labels
    unit_of_row: Labels
    representatives: Labels
    ids: Ids
    merged: Mask

    def __len__(self) -> int:
        return len(self.ids)


def load_contents(connection: Connection, run: ProjectRun, nodes: Nodes, rules: PairRules) -> Contents:
    """Load the stored graph, and build the contents of all ``nodes`` of the project, without vectors."""
    lowest = run.graph_threshold - SLACK
    found = similarity_graph.load_neighbors(connection, run.project.id, run.embedder.name, lowest)
    return build_contents(run, nodes, np.empty((len(nodes), 0), np.float32), found, rules)


def build_contents(run: ProjectRun, nodes: Nodes, x: Vectors, found: Neighbors, rules: PairRules) -> Contents:
    """Build the contents of ``nodes`` and the pairs between them, within the scopes.

    A pair of contents has the highest similarity and the highest verdict of its pairs of nodes. If a person undid their
    merge, the verdict is ASK at most; if a person keeps both as variants, it is TOPIC at most.

    Args:
        nodes: nodes, sorted by id.
        x: their grouping vectors (n, d).
        found: pairs of nodes.
        rules: what people decided on merges.
    """
    nodes = _leave_crossing_merges(nodes)
    content_of_row = number_contents(nodes, rules)
    one, other = find_positions(nodes.ids, found.a), find_positions(nodes.ids, found.b)
    is_edge = (one >= 0) & (other >= 0)
    # A plan may read pairs that were stored under another scope option.
    is_edge &= nodes.scopes[one] == nodes.scopes[other]
    if not run.options.cross_type:
        types = type_keys(nodes)
        is_edge &= (types[one] == types[other]) | (found.verdict == ASK)
    one[is_edge], other[is_edge] = content_of_row[one[is_edge]], content_of_row[other[is_edge]]
    is_edge &= one != other
    low, high = np.minimum(one, other)[is_edge], np.maximum(one, other)[is_edge]
    # Sorted by pair of contents, the most similar pair of nodes first.
    order = np.lexsort((-found.similarity[is_edge], high, low))
    low, high = low[order], high[order]
    first = np.flatnonzero((np.diff(low, prepend=-1) != 0) | (np.diff(high, prepend=-1) != 0))
    similarity, verdict = found.similarity[is_edge][order][first], found.verdict[is_edge][order]
    pairs = SimilarPairs(low[first].astype(np.int32), high[first].astype(np.int32), similarity)
    if first.size:
        verdict = np.maximum.reduceat(verdict, first)
        for given, highest in ((rules.cannot_link, ASK), (rules.variants, TOPIC)):
            forbidden = are_forbidden(nodes, content_of_row, pairs, given)
            verdict[forbidden] = np.minimum(verdict[forbidden], highest)
    return Contents(nodes, x, content_of_row, pairs, verdict, int(content_of_row.max(initial=-1)) + 1)


def are_forbidden(nodes: Nodes, content_of_row: Labels, pairs: SimilarPairs, rules: CannotLink) -> Mask:
    """Return for each pair of contents (m,) if a person decided so on memories of both."""
    links = rules.among(nodes.ids)
    at = content_of_row[find_positions(nodes.ids, links.ids)]
    return CannotLink(at, links.merges, links.parts).forbids(pairs.i, pairs.j)


def number_contents(nodes: Nodes, rules: PairRules) -> Labels:
    """Return the number of the content of each node (n,), 0..c-1."""
    cannot_link = rules.cannot_link.among(nodes.ids)
    return _split_repeats(content_keys(nodes), find_positions(nodes.ids, cannot_link.ids), cannot_link)


def _leave_crossing_merges(nodes: Nodes) -> Nodes:
    """Return the nodes as a run leaves them that dissolves the merged memories of several scopes."""
    merges, number = np.unique(nodes.merged_into, return_inverse=True)
    pairs = np.unique(np.stack([number.reshape(-1), scope_keys(nodes)]), axis=1)
    crossing = (np.bincount(pairs[0], minlength=len(merges)) > 1) & (merges != b"")
    return (
        replace(nodes, merged_into=np.where(crossing[number.reshape(-1)], b"", nodes.merged_into))
        if crossing.any()
        else nodes
    )


def _split_repeats(content_of_row: Labels, rows: Labels, cannot_link: CannotLink) -> Labels:
    """Split contents whose exact repeats must not be merged; return the content of each node (n,).

    Args:
        content_of_row: content of each node (n,) before.
        rows: rows of the nodes that ``cannot_link`` names.
    """
    if not len(rows):
        return content_of_row
    split = content_of_row.copy()
    keys = np.stack([cannot_link.merges, content_of_row[rows], cannot_link.parts], axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    # The first part of an undone merge keeps the content. Every further part in the same content gets a new one.
    is_further = np.r_[False, (np.diff(distinct[:, :2], axis=0) == 0).all(axis=1)]
    number = np.where(is_further, content_of_row.max() + np.cumsum(is_further), -1)[inverse.reshape(-1)]
    split[rows[number >= 0]] = number[number >= 0]
    return np.unique(split, return_inverse=True)[1].reshape(-1)


def build_units(run: ProjectRun, contents: Contents) -> Units:
    """Build the units: every merge group and every single content. Contents that were merged before stay together."""
    labels = _label_former_merges(contents)
    if run.options.merge:
        candidates = contents.pairs.select(contents.verdict == MERGE)
        labels = complete_linkage(contents.count, candidates, run.thresholds["t_merge"], initial=labels)
    return _build_units_of(run, contents, labels)


def split_units(run: ProjectRun, contents: Contents, units: Units, refused: Sequence[int]) -> tuple[Contents, Units]:
    """Return contents and units with the units ``refused`` as they were: only what was merged before stays together.

    The verdict on pairs inside of them is TOPIC: nobody is asked about them.
    """
    labels, pairs = units.unit_of_content.copy(), contents.pairs
    apart = np.isin(labels, refused)
    is_inside = apart[pairs.i] & (labels[pairs.i] == labels[pairs.j])
    contents = replace(contents, verdict=np.where(is_inside, np.int16(TOPIC), contents.verdict))
    former = _label_former_merges(contents)
    labels[apart] = np.where(former[apart] < 0, -1, len(units) + former[apart])
    return contents, _build_units_of(run, contents, labels)


def _build_units_of(run: ProjectRun, contents: Contents, labels: Labels) -> Units:
    """Return the units of contents by label (c,); -1 = a content of its own."""
    alone = labels < 0
    labels[alone] = labels.max(initial=-1) + 1 + np.arange(alone.sum())
    unit_of_content = renumber_labels(labels, 1)
    unit_of_row = unit_of_content[contents.content_of_row]
    # The most reused memory represents a unit; ties: the most similar to the others, then the smallest id.
    similar = summarize_groups(contents.x, unit_of_row, minimum=False).mean_similarity
    representatives = choose_representatives(unit_of_row, contents.nodes.reused, similar, contents.nodes.ids)
    ids, merged = _find_unit_ids(run, contents.nodes, unit_of_row, representatives)
    return Units(unit_of_content, unit_of_row, representatives, ids, merged)


def _label_former_merges(contents: Contents) -> Labels:
    """Return the group of each content (c,) that was merged before, -1 = it was not.

    After undoing and redoing, repeats of one content may be in several merged memories: these become one.
    """
    was_merged = np.flatnonzero(contents.nodes.merged_into != b"")
    names, merged = np.unique(contents.nodes.merged_into[was_merged], return_inverse=True)
    # A graph of contents and, after them, merged memories. Each connected component is a group.
    edges = contents.content_of_row[was_merged].astype(np.int32), (contents.count + merged.reshape(-1)).astype(np.int32)
    links = SimilarPairs(*edges, np.ones(len(was_merged), dtype=np.float32))
    return connected_components(contents.count + len(names), links, 1.0)[: contents.count]


def _find_unit_ids(run: ProjectRun, nodes: Nodes, unit_of_row: Labels, representatives: Labels) -> tuple[Ids, Mask]:
    """Return the id of each unit, and True if it is a merged memory, existing or about to be made."""
    ids, sizes = nodes.ids[representatives].copy(), np.bincount(unit_of_row, minlength=len(representatives))
    existing = _find_merged_memories(nodes, unit_of_row, len(ids))
    is_existing = (existing != b"") & (sizes > 1)
    ids[is_existing] = existing[is_existing]
    is_new = (existing == b"") & (sizes > 1) & (sizes >= run.options.min_cluster_size) & run.options.merge
    order = np.argsort(unit_of_row, kind="stable")
    ends = np.cumsum(sizes)
    for unit in np.flatnonzero(is_new).tolist():
        sources = to_uuids(nodes.ids[order[ends[unit] - sizes[unit] : ends[unit]]])
        ids[unit] = to_ids([name_merged(run, sources)])[0]
    return ids, is_existing | is_new


def name_merged(run: ProjectRun, sources: Sequence[UUID]) -> UUID:
    """Return the id of a new merged memory of these raw memories."""
    return consolidated_id(run.project.slug, "merged", sources, ALGORITHM_VERSION)


def _find_merged_memories(nodes: Nodes, unit_of_row: Labels, units: int) -> Ids:
    """Return for each unit (u,) the merged memory with most of its sources; ties: the smallest id; empty = none."""
    existing = np.zeros(units, dtype="S16")
    rows = np.flatnonzero(nodes.merged_into != b"")
    if not rows.size:
        return existing
    # ``key`` is a pair of unit and merged memory, as one number.
    names, named = np.unique(nodes.merged_into[rows], return_inverse=True)
    key, count = np.unique(unit_of_row[rows] * len(names) + named.reshape(-1), return_counts=True)
    order = np.lexsort((key, -count, key // len(names)))
    first = order[np.flatnonzero(np.diff(key[order] // len(names), prepend=-1))]
    existing[key[first] // len(names)] = names[key[first] % len(names)]
    return existing


@dataclass(frozen=True)
class UnitPairs:
    """Pairs of units (m,), and the ``verdict`` (m,) on each."""

    pairs: SimilarPairs
    verdict: Verdicts


def pair_units(contents: Contents, units: Units) -> UnitPairs:
    """Return the pairs of units whose representatives are a pair of contents, with its similarity and verdict."""
    unit_of = np.full(contents.count, -1, dtype=np.int64)
    unit_of[contents.content_of_row[units.representatives]] = np.arange(len(units))
    one, other = unit_of[contents.pairs.i], unit_of[contents.pairs.j]
    both = (one >= 0) & (other >= 0)
    low, high = np.minimum(one, other)[both], np.maximum(one, other)[both]
    pairs = SimilarPairs(low.astype(np.int32), high.astype(np.int32), contents.pairs.similarity[both])
    return UnitPairs(pairs, contents.verdict[both])
