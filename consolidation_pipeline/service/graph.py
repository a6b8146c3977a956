"""Keep the similarity graph complete: new or changed memories are compared with everything, nothing twice."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.similarity import similarity_join
from consolidation_pipeline.core.vectors import center
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store import graph
from consolidation_pipeline.store.engine import Connection
from consolidation_pipeline.store.graph import Calibration, Nodes
from consolidation_pipeline.store.vectors_io import Vectors, to_uuids

# A mean of fewer vectors says more about them than about the project; below this, vectors are compared as they are.
FEWEST_TO_CENTER = 100
# Growth of the active memories after which centre and thresholds are taken anew (pipeline.md).
RENEWAL_GROWTH = 1.5


@dataclass(frozen=True)
class GraphUpdate:
    """What an update of the graph did: nodes in all, nodes compared now, pairs added, and whether it began anew."""

    nodes: int
    compared: int
    pairs_added: int
    rebuilt: bool
    calibration: int


def update_similarity_graph(run: ProjectRun, *, renew: bool = True) -> GraphUpdate:
    """Compare what was not compared yet with everything, in one transaction. The result is that of a rebuild.

    ``renew``: take centre and thresholds anew when the project outgrew them; the graph is rebuilt then.
    """
    with run.engine.begin() as connection:
        nodes, vectors = load_graph_nodes(connection, run)
        snapshot, rebuilt = _current_calibration(connection, run, nodes, vectors, renew=renew)
        graph.prune_neighbors(connection, run.project.id, run.embedder.name)
        known, new = _split_carriers(nodes, vectors, snapshot.version)
        added = _compare(connection, run, nodes.ids, centered(vectors, snapshot), known=known, new=new)
        graph.mark_compared(connection, to_uuids(nodes.ids[new]), snapshot.version)
    return GraphUpdate(len(nodes), len(new), added, rebuilt, snapshot.version)


def load_graph_nodes(connection: Connection, run: ProjectRun) -> tuple[Nodes, Vectors]:
    """All nodes of the project and their plain vectors float32 (n, d), both sorted by id."""
    model = run.embedder.name
    nodes = graph.load_nodes(connection, run.project.id, model)
    if not len(nodes):
        return nodes, np.empty((0, 0), np.float32)
    dimension = graph.load_dimension(connection, run.project.id, model)
    ids, vectors = graph.load_node_vectors(connection, run.project.id, model, dimension)
    return nodes.select(np.isin(nodes.ids, ids)), vectors[np.isin(ids, nodes.ids)]


def centered(vectors: Vectors, snapshot: Calibration) -> Vectors:
    """The vectors that are compared for grouping: the snapshot's centre taken off, normalised again."""
    return vectors if snapshot.center is None or not len(vectors) else center(vectors, snapshot.center)


def _current_calibration(
    connection: Connection, run: ProjectRun, nodes: Nodes, vectors: Vectors, *, renew: bool
) -> tuple[Calibration, bool]:
    """The snapshot in force, and whether it was taken just now (the graph is empty then)."""
    model = run.embedder.name
    held = graph.load_calibration(connection, run.project.id, model)
    active = _is_active(nodes)
    if held is not None and not (renew and _is_outgrown(held, run, int(active.sum()))):
        return held, False
    taken = Calibration(
        version=1 if held is None else held.version + 1,
        center=_mean(vectors[active]) if run.options.center and active.sum() >= FEWEST_TO_CENTER else None,
        thresholds=run.thresholds,
        memories=int(active.sum()),
    )
    graph.append_calibration(connection, run.project.id, model, taken)
    graph.clear_neighbors(connection, run.project.id, model)
    return taken, True


def _is_active(nodes: Nodes) -> npt.NDArray[np.bool_]:
    return np.asarray((nodes.kind == "merged") | (nodes.merged_into == b""))


def _is_outgrown(held: Calibration, run: ProjectRun, active: int) -> bool:
    wanted = run.options.center and held.memories >= FEWEST_TO_CENTER
    return (
        active >= RENEWAL_GROWTH * max(held.memories, 1)
        or dict(held.thresholds) != run.thresholds
        or wanted != (held.center is not None)
    )


def _mean(vectors: Vectors) -> Vectors:
    # float64, or the sum of many float32 rows would depend on their number and order.
    return np.asarray(vectors.mean(axis=0, dtype=np.float64), dtype=np.float32)


def _split_carriers(nodes: Nodes, vectors: Vectors, version: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
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


def variant_keys(nodes: Nodes, vectors: Vectors) -> npt.NDArray[np.int64]:
    """One number per node (n,), equal for exact repeats of one type whose vectors (n, d) are equal too.

    Normalising the text hides case and white space, a model may not: such repeats are variants, each with neighbours
    of its own.
    """
    _, repeats, count = np.unique(repeat_keys(nodes), return_inverse=True, return_counts=True)
    repeats = repeats.reshape(-1)
    digests = np.zeros(len(nodes), dtype=np.uint64)
    for row in np.flatnonzero(count[repeats] > 1).tolist():
        digests[row] = int.from_bytes(blake2b(vectors[row].tobytes(), digest_size=8).digest(), "big")
    variant = np.unique(digests, return_inverse=True)[1].reshape(-1)
    return np.asarray(repeats.astype(np.int64) * max(len(nodes), 1) + variant)


def repeat_keys(nodes: Nodes) -> npt.NDArray[np.str_]:
    """One key per node, equal for exact repeats of one type; every merged memory has its own."""
    own = np.char.mod("merged %d", np.arange(len(nodes)))
    return np.where(nodes.kind == "raw", np.char.add(np.char.add(nodes.memory_type, " "), nodes.repeats), own)


def _compare(
    connection: Connection,
    run: ProjectRun,
    ids: npt.NDArray[np.bytes_],
    vectors: Vectors,
    *,
    known: npt.NDArray[np.intp],
    new: npt.NDArray[np.intp],
) -> int:
    """Find and store the pairs of ``new`` with ``known`` and with each other."""
    if not new.size:
        return 0
    order = np.concatenate([known, new])
    pairs = similarity_join(vectors[order], run.thresholds["t_pattern"], known=len(known))
    one, other = order[pairs.i], order[pairs.j]
    a, b = np.minimum(one, other), np.maximum(one, other)  # positions are sorted by id, so a < b holds for ids too
    graph.append_neighbors(connection, run.project.id, run.embedder.name, ids[a], ids[b], pairs.similarity)
    return len(pairs)
