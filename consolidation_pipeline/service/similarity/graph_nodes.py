"""What is compared: the nodes of a project with the vectors that count for grouping, and which of them are repeats."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.vectors import center, positions_of
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.calibrations import Calibration
from consolidation_pipeline.store.similarity.similarity_graph import Nodes

_TYPES = np.sort(np.array(MEMORY_TYPES))


class ProjectContext(Protocol):
    """A project seen through one embedding model: what a run is, and what can be looked at without one."""

    @property
    def engine(self) -> Engine: ...

    @property
    def project(self) -> Project: ...

    @property
    def options(self) -> ConsolidationOptions: ...

    @property
    def embedder(self) -> Embedder: ...


@dataclass(frozen=True)
class StandaloneProject:
    """A project looked at without a run."""

    engine: Engine
    project: Project
    options: ConsolidationOptions
    embedder: Embedder


def load_graph_nodes(connection: Connection, run: ProjectContext, *, plain: bool = False) -> tuple[Nodes, Vectors]:
    """All nodes of the project and their vectors float32 (n, d), both sorted by id, not centred.

    Memories with boilerplate come with the vector of the rest of their text, unless ``plain``.
    """
    return similarity_graph.load_nodes_with_vectors(connection, run.project.id, run.embedder.name, plain=plain)


def load_grouping_nodes(connection: Connection, run: ProjectRun) -> tuple[Nodes, Vectors]:
    """All nodes and the vectors that are compared, float32 (n, d), both sorted by id: boilerplate left out, centred.

    Those that the run has compared a moment ago it hands over, once, as they are many; the others are loaded.
    """
    snapshot, (kept, run.compared) = run.calibration, (run.compared, None)
    if snapshot is None or kept is None or (kept.model, kept.version) != (run.embedder.name, snapshot.version):
        nodes, vectors = load_graph_nodes(connection, run)
        return nodes, vectors if snapshot is None else center_vectors(vectors, snapshot)
    nodes = similarity_graph.load_nodes(connection, run.project.id, kept.model)
    at = positions_of(kept.ids, nodes.ids)
    at[nodes.graph_version != kept.version] = -1
    missing = nodes.ids[at < 0]
    loaded, vectors = similarity_graph.load_nodes_with_vectors(connection, run.project.id, kept.model, only=missing)
    nodes, at = nodes.select(there := (at >= 0) | np.isin(nodes.ids, loaded.ids)), at[there]
    x = kept.x[at]
    x[at < 0] = center_vectors(vectors, snapshot)[np.isin(loaded.ids, nodes.ids)]
    return nodes, x


def center_vectors(vectors: Vectors, snapshot: Calibration) -> Vectors:
    """The vectors that are compared for grouping: the snapshot's centre taken off, normalised again."""
    return vectors if snapshot.center is None or not len(vectors) else center(vectors, snapshot.center)


def count_units(nodes: Nodes) -> int:
    """How many memories stand for themselves: raw ones that are in no merged memory, and the merged memories."""
    return int((nodes.merged_into == b"").sum() + len(np.unique(nodes.merged_into[nodes.merged_into != b""])))


def first_rows_of_contents(nodes: Nodes) -> npt.NDArray[np.int64]:
    """Position of the first node of each distinct content, in the order of their texts' hashes.

    The order follows from the contents alone, so a sample of the first of them does not depend on ids or time.
    """
    rows = np.unique(content_keys(nodes), return_index=True)[1]
    return np.asarray(rows[np.lexsort((nodes.memory_type[rows], nodes.repeats[rows]))], dtype=np.int64)


def variant_keys(nodes: Nodes, vectors: Vectors) -> npt.NDArray[np.int64]:
    """One number per node (n,), equal for exact repeats of one type whose vectors (n, d) are equal too.

    Normalising the text hides case and white space, a model may not: such repeats are variants, each with neighbours
    of its own.
    """
    contents = content_keys(nodes)
    digests = np.zeros(len(nodes), dtype=np.uint64)
    for row in np.flatnonzero(np.bincount(contents)[contents] > 1).tolist() if len(nodes) else ():
        digests[row] = int.from_bytes(blake2b(vectors[row].tobytes(), digest_size=8).digest(), "big")
    variant = np.unique(digests, return_inverse=True)[1].reshape(-1)
    return np.asarray(contents * max(len(nodes), 1) + variant)


def type_keys(nodes: Nodes) -> npt.NDArray[np.int64]:
    """One number per node (n,), the same for nodes of one memory type."""
    return np.searchsorted(_TYPES, nodes.memory_type).astype(np.int64)


def content_keys(nodes: Nodes) -> npt.NDArray[np.int64]:
    """Content of each node (n,), 0..c-1: one text of one memory type, with all its exact repeats."""
    texts, of_text = np.unique(nodes.repeats, return_inverse=True)
    keys = type_keys(nodes) * max(len(texts), 1) + of_text.reshape(-1)
    return np.asarray(np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64))
