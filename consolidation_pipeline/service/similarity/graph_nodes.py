"""Nodes of the similarity graph, the vectors that are compared, and keys that group nodes by type and content."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.vectors import center, find_positions
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.llm.budget import CallLedger
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.model_access import open_spend_ledger
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_ids
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.calibrations import Calibration
from consolidation_pipeline.store.similarity.grouping_vectors import load_text_hashes
from consolidation_pipeline.store.similarity.similarity_graph import ComparedVectors, Nodes

Mask = npt.NDArray[np.bool_]

_TYPES = np.sort(np.array(MEMORY_TYPES))


@dataclass(frozen=True)
class StandaloneProject:
    """A project opened without a run. ``job_id``: id under which paid calls are recorded."""

    engine: Engine
    project: Project
    options: ConsolidationOptions
    embedder: Embedder
    job_id: UUID

    @cached_property
    def spend_ledger(self) -> CallLedger:
        """Ledger of the calls to the language model: reply cache and budgets of the project."""
        return open_spend_ledger(self.engine, self.project, self.options, self.job_id)


# A project with its options and embedding model.
ProjectContext = ProjectRun | StandaloneProject


def load_graph_nodes(
    connection: Connection, context: ProjectContext, *, plain: bool = False, only: Ids | None = None
) -> tuple[Nodes, Vectors]:
    """Return all nodes of the project and their vectors float32 (n, d), both sorted by id, not centred.

    The vector of a memory is that of its text without boilerplate; with ``plain``, that of its whole text. ``only``:
    ids S16 of the nodes to return; None = all.
    """
    project, model, scope = context.project.id, context.embedder.name, context.options.scope
    return similarity_graph.load_nodes_with_vectors(connection, project, model, scope=scope, plain=plain, only=only)


def load_grouping_vectors(connection: Connection, run: ProjectRun, nodes: Nodes) -> tuple[Mask, Vectors]:
    """Return which of ``nodes`` (n,) have a vector, and the centred grouping vectors float32 (k, d) of these.

    Vectors that this run has just compared are taken from the run, the others are loaded.
    """
    compared, rows = _find_compared(run, nodes)
    loaded, vectors = load_graph_nodes(connection, run, only=nodes.ids[rows < 0])
    if run.calibration is not None:
        vectors = center_vectors(vectors, run.calibration)
    # A node whose vector went since the nodes were loaded is left out.
    has_vector = (rows >= 0) | np.isin(nodes.ids, loaded.ids)
    known = None if compared is None else compared.centered
    x = _take_rows(known, rows[has_vector], loaded.ids, vectors, nodes.ids[has_vector])
    # ``load_plain_vectors`` writes to the run's vectors.
    return has_vector, x.copy() if compared is not None and x is compared.vectors else x


def load_plain_vectors(connection: Connection, run: ProjectRun, nodes: Nodes, wanted: Mask) -> Vectors:
    """Return the vectors (n, d) of the whole texts of ``nodes`` (n,) where ``wanted`` is True; others are any.

    The run releases the vectors that it has just compared.
    """
    compared, rows = _find_compared(run, nodes)
    run.compared = None
    stripped = to_ids(list(load_text_hashes(connection, run.project.id, run.embedder.name)))
    rows[np.isin(nodes.ids, stripped)] = -1
    loaded, vectors = load_graph_nodes(connection, run, plain=True, only=nodes.ids[wanted & (rows < 0)])
    return _take_rows(None if compared is None else compared.vectors, rows, loaded.ids, vectors, nodes.ids)


def _find_compared(run: ProjectRun, nodes: Nodes) -> tuple[ComparedVectors | None, npt.NDArray[np.int64]]:
    """Return the vectors that this run has just compared, and their row for each of ``nodes`` (n,), -1 = none."""
    compared, version = run.compared, None if run.calibration is None else run.calibration.version
    if compared is None or (compared.model, compared.version) != (run.embedder.name, version):
        return None, np.full(len(nodes), -1, dtype=np.int64)
    rows = find_positions(compared.ids, nodes.ids)
    rows[nodes.graph_version != compared.version] = -1
    return compared, rows


def _take_rows(x: Vectors | None, rows: npt.NDArray[np.int64], loaded_ids: Ids, loaded: Vectors, ids: Ids) -> Vectors:
    """Return the vectors (n, d) of ``ids``: ``rows`` of ``x``, of those with -1 the loaded ones, or zeros.

    If these are all rows of ``x`` in order, the loaded ones are written to it: a copy takes seconds.
    """
    is_missing = rows < 0
    if x is None or not len(x):
        taken = np.zeros((len(ids), loaded.shape[1]), dtype=np.float32)
    elif len(rows) == len(x) and ((rows == np.arange(len(x))) | is_missing).all():
        taken = x
    else:
        taken = x[rows]
    if is_missing.any():
        at = find_positions(loaded_ids, ids[is_missing])
        taken[is_missing] = np.where(at[:, None] >= 0, loaded[at], 0.0) if len(loaded) else 0.0
    return taken


def center_vectors(vectors: Vectors, snapshot: Calibration) -> Vectors:
    """Return the vectors minus the snapshot's mean vector, normalised again; unchanged if it has none."""
    return vectors if snapshot.center is None or not len(vectors) else center(vectors, snapshot.center)


def count_units(nodes: Nodes) -> int:
    """Return the number of units: raw memories that are in no merged memory, and merged memories."""
    return int((nodes.merged_into == b"").sum() + len(np.unique(nodes.merged_into[nodes.merged_into != b""])))


def first_rows_of_contents(nodes: Nodes) -> npt.NDArray[np.int64]:
    """Return the row of the first node of each text of one memory type, in the order of the hashes of the texts.

    The order depends on the texts alone. So a sample of the first rows does not depend on ids or time.
    """
    rows = np.unique(text_keys(nodes), return_index=True)[1]
    return np.asarray(rows[np.lexsort((nodes.memory_type[rows], nodes.repeats[rows]))], dtype=np.int64)


def variant_keys(nodes: Nodes, vectors: Vectors) -> npt.NDArray[np.int64]:
    """Return a number per node (n,), equal for nodes of one content with equal vectors (n, d).

    Exact repeats may differ in case and white space, so a model may give them different vectors. These are variants of
    the content, each with its own neighbours.
    """
    contents = content_keys(nodes)
    digests = np.zeros(len(nodes), dtype=np.uint64)
    for row in np.flatnonzero(np.bincount(contents)[contents] > 1).tolist() if len(nodes) else ():
        digests[row] = int.from_bytes(blake2b(vectors[row].tobytes(), digest_size=8).digest(), "big")
    variant = np.unique(digests, return_inverse=True)[1].reshape(-1)
    return np.asarray(contents * max(len(nodes), 1) + variant)


def type_keys(nodes: Nodes) -> npt.NDArray[np.int64]:
    """Return a number per node (n,), equal for nodes of one memory type."""
    return np.searchsorted(_TYPES, nodes.memory_type).astype(np.int64)


def scope_keys(nodes: Nodes) -> npt.NDArray[np.int64]:
    """Return a number per node (n,), 0..s-1, equal for nodes of one scope."""
    return np.asarray(np.unique(nodes.scopes, return_inverse=True)[1].reshape(-1).astype(np.int64))


def text_keys(nodes: Nodes) -> npt.NDArray[np.int64]:
    """Return a number per node (n,), 0..t-1, equal for nodes of one text and memory type."""
    return _combine(type_keys(nodes), np.unique(nodes.repeats, return_inverse=True)[1].reshape(-1))


def content_keys(nodes: Nodes) -> npt.NDArray[np.int64]:
    """Return the content of each node (n,), 0..c-1: a text of one memory type and scope, with its exact repeats."""
    return _combine(text_keys(nodes), scope_keys(nodes))


def _combine(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a number per row (n,), 0..k-1, equal for rows that are equal in both; rows are ordered by both."""
    keys = one * (other.max(initial=0) + 1) + other
    return np.asarray(np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64))
