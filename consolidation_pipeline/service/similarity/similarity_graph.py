"""Keep the similarity graph complete: new or changed memories are compared with everything, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.similarity.similarity_join import (
    SimilarPairs,
    concatenate_pairs,
    iter_similar_pairs,
    reaches,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.calibration import calibrate_thresholds
from consolidation_pipeline.service.similarity.graph_nodes import (
    center_vectors,
    load_graph_nodes,
    type_keys,
    variant_keys,
)
from consolidation_pipeline.service.similarity.pair_classification import classify_pairs
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.similarity_graph import (
    CROSS_TYPE,
    TOPIC,
    ComparedVectors,
    Neighbors,
    Nodes,
    concatenate_neighbors,
)

# Pairs that go to the database in one piece: about 50 MB.
WRITE_BLOCK_PAIRS = 1_000_000
# Pairs near enough to be judged, which takes their texts: about 100 MB, and no text is read twice below that.
CLASSIFY_BLOCK_PAIRS = 8_000_000


@dataclass(frozen=True)
class GraphUpdate:
    """What an update of the graph did: nodes in all, nodes compared now, pairs added, and whether it began anew."""

    nodes: int
    compared: int
    pairs_added: int
    rebuilt: bool
    calibration: int


def update_similarity_graph(run: ProjectRun) -> GraphUpdate:
    """Compare what was not compared yet with everything, in one transaction. The result is that of a rebuild.

    Everything counts as not compared after the calibration was renewed. It is not renewed here, but taken where there
    is none yet; memories that came since are held against its boilerplate before they are compared.
    """
    done = calibrate_thresholds(run, renew=False)
    snapshot = done.snapshot
    with run.transaction() as connection:
        nodes, vectors = load_graph_nodes(connection, run)
        similarity_graph.prune_neighbors(connection, run.project.id, run.embedder.name)
        # What came with a vector of its own a moment ago was not looked at yet: the next update compares it.
        looked_at = (nodes.graph_version == snapshot.version) | np.isin(nodes.ids, done.checked_ids)
        nodes, vectors = nodes.select(looked_at), vectors[looked_at]
        known, new = split_known_and_new(nodes, vectors, snapshot.version)
        x = center_vectors(vectors, snapshot)
        found = compare_nodes(connection, run, nodes, x, known=known, new=new)
        added = similarity_graph.append_neighbors(connection, run.project.id, run.embedder.name, found)
        similarity_graph.mark_compared(connection, nodes.ids[new], snapshot.version)
    run.compared = ComparedVectors(run.embedder.name, snapshot.version, nodes.ids, x)
    return GraphUpdate(len(nodes), len(new), added, bool(len(new)) and not len(known), snapshot.version)


def split_known_and_new(
    nodes: Nodes, vectors: Vectors, version: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Positions of the nodes that are compared: those that were (known) and those that were not (new).

    Repeats with the same vector have the same neighbours, so one of them, the carrier, is compared for all.
    """
    known = nodes.graph_version == version
    keys = variant_keys(nodes, vectors)
    order = np.lexsort((np.arange(len(nodes)), ~known, keys))
    first = np.ones(len(nodes), dtype=bool)
    first[1:] = keys[order][1:] != keys[order][:-1]
    carriers = np.zeros(len(nodes), dtype=bool)
    carriers[order[first]] = True
    return np.flatnonzero(known), np.flatnonzero(carriers & ~known)


def compare_nodes(
    connection: Connection,
    run: ProjectRun,
    nodes: Nodes,
    vectors: Vectors,
    *,
    known: npt.NDArray[np.intp],
    new: npt.NDArray[np.intp],
) -> Iterator[Neighbors]:
    """The pairs of ``new`` with ``known`` and with each other, in blocks, and the verdict on each."""
    if not new.size:
        return
    order, types = np.concatenate([known, new]).astype(np.int32), type_keys(nodes)
    waiting: list[SimilarPairs] = []
    apart: list[Neighbors] = []
    for pairs in iter_similar_pairs(vectors[order], run.thresholds["t_pattern"], known=len(known)):
        one, other = order[pairs.i], order[pairs.j]
        # Positions are sorted by id, so a < b holds for ids too.
        placed = SimilarPairs(np.minimum(one, other), np.maximum(one, other), pairs.similarity)
        verdict = np.full(len(placed), TOPIC, dtype=np.int16)
        if not run.options.cross_type:
            verdict[types[placed.i] != types[placed.j]] = CROSS_TYPE
        near = (verdict == TOPIC) & reaches(placed.similarity, run.thresholds["t_suggest"])
        apart.append(_neighbors(nodes, placed.select(~near), verdict[~near]))
        waiting.append(placed.select(near))
        if sum(map(len, apart)) > WRITE_BLOCK_PAIRS:
            yield concatenate_neighbors(apart)
            apart = []
        if sum(map(len, waiting)) > CLASSIFY_BLOCK_PAIRS:
            yield _judged(connection, run, nodes, waiting)
            waiting = []
    yield concatenate_neighbors([*apart, _judged(connection, run, nodes, waiting)])


def _judged(connection: Connection, run: ProjectRun, nodes: Nodes, waiting: list[SimilarPairs]) -> Neighbors:
    pairs = concatenate_pairs(waiting)
    return _neighbors(nodes, pairs, classify_pairs(connection, run, nodes, pairs))


def _neighbors(nodes: Nodes, pairs: SimilarPairs, verdict: npt.NDArray[np.int16]) -> Neighbors:
    return Neighbors(nodes.ids[pairs.i], nodes.ids[pairs.j], pairs.similarity, verdict)
