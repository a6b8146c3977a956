"""Preview of grouping: the contents that a run would group, computed in memory by the functions of a run.

Memories without a vector are embedded, a calibration that is due is made, and new memories are compared. No paid call
is made: memories that a paid model would have to embed are left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.similarity.similarity_join import SLACK
from consolidation_pipeline.embed.embedder import Usage, is_free
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.calibration import find_renewal_reason
from consolidation_pipeline.service.similarity.calibration_fit import fit_calibration, load_stored_vectors
from consolidation_pipeline.service.similarity.graph_nodes import center_vectors, count_units
from consolidation_pipeline.service.similarity.grouping_vectors import build_grouping_vectors, embed_stripped_texts
from consolidation_pipeline.service.similarity.merge_groups import Contents, build_contents, load_pair_rules
from consolidation_pipeline.service.similarity.pair_judgement import JudgedPairs, judge_pairs
from consolidation_pipeline.service.similarity.screen_keys import ScreenKeys
from consolidation_pipeline.service.similarity.similarity_graph import compare_nodes, split_known_and_new
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_uuids
from consolidation_pipeline.store.memories.embeddings import load_reusable_vectors
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.calibrations import Calibration
from consolidation_pipeline.store.similarity.grouping_vectors import load_text_hashes
from consolidation_pipeline.store.similarity.similarity_graph import MERGE, NO_NEIGHBORS, Neighbors, Nodes


@dataclass(frozen=True, eq=False)
class GroupingPreview:
    """The contents that a run would group, and the ``plain`` vectors (n, d) of their nodes.

    ``unembedded``: memories that a paid model has to embed first; ``usage``: tokens and price of that.
    ``calibration``: reason of a new calibration, None = the current one is kept. ``paid``: there is none, and only a
    paid model can make the first one; the preview uses the thresholds of the model's profile. ``judged``: stored
    decisions of the pair judge, None without one.
    """

    contents: Contents
    plain: Vectors
    unembedded: Sequence[UUID]
    usage: Usage
    calibration: str | None
    judged: JudgedPairs | None


def preview_grouping(run: ProjectRun) -> GroupingPreview:
    """Compute the contents that a run would group if it began now, and set the calibration of ``run``.

    Raises:
        EmbeddingError: The model gave no usable vector.
    """
    with run.engine.connect() as connection:
        nodes, plain, left_out = _load_or_embed(connection, run)
        vectors, reason = _calibrate(connection, run, nodes, plain)
        x = vectors if run.calibration is None else center_vectors(vectors, run.calibration)
        found = _find_neighbors(connection, run, nodes, x)
        rules = load_pair_rules(connection, run.project.id)
    judged = judge_pairs(run, nodes, found, ask=False)
    if judged is not None and judged.allowed:
        found.verdict[judged.same] = MERGE
    contents = build_contents(run, nodes, x, found, rules)
    usage = run.embedder.estimate(list(left_out.values()))
    return GroupingPreview(contents, plain, list(left_out), usage, reason, judged)


def _load_or_embed(connection: Connection, run: ProjectRun) -> tuple[Nodes, Vectors, dict[UUID, str]]:
    """Return all nodes with a vector, stored or free, their plain vectors (n, d), and the texts left out by id."""
    project, model, scope = run.project.id, run.embedder.name, run.options.scope
    nodes = similarity_graph.load_nodes(connection, project, None, scope=scope)
    dimension = similarity_graph.load_dimension(connection, project, model)
    embedded, stored = similarity_graph.load_nodes_with_vectors(connection, project, model, scope=scope, plain=True)
    parts = [(embedded.ids, stored)] if dimension else []
    missing = _find_missing(nodes.ids, parts)
    # The graph version of a node without a vector may be that of another model's graph.
    nodes = replace(nodes, graph_version=np.where(np.isin(nodes.ids, missing), -1, nodes.graph_version))
    loaded = load_texts(connection, to_uuids(missing))
    texts = {id_: loaded[uuid] for id_, uuid in zip(missing.tolist(), to_uuids(missing), strict=True)}
    if texts and is_free(run.embedder):
        parts.append((missing, run.embedder.embed(list(texts.values()))))
    elif texts and dimension:
        parts.append(load_reusable_vectors(connection, project, model, dimension))
    left_out = {id_: loaded[id_] for id_ in to_uuids(_find_missing(nodes.ids, parts))}
    ids = np.concatenate([np.empty(0, dtype="S16"), *(known for known, _ in parts)])
    vectors = np.concatenate([part for _, part in parts]) if parts else np.empty((0, 0), np.float32)
    order = np.argsort(ids)
    order = order[np.isin(ids[order], nodes.ids)]
    return nodes.select(np.isin(nodes.ids, ids)), vectors[order], left_out


def _find_missing(ids: Ids, parts: Sequence[tuple[Ids, Vectors]]) -> Ids:
    return ids[~np.isin(ids, np.concatenate([np.empty(0, dtype="S16"), *(known for known, _ in parts)]))]


def _calibrate(connection: Connection, run: ProjectRun, nodes: Nodes, plain: Vectors) -> tuple[Vectors, str | None]:
    """Return the grouping vectors (n, d), not centred, and the reason of a new calibration, which ``run`` then has."""
    current = run.calibration
    reason = find_renewal_reason(current, run, lambda: count_units(nodes), renew=is_free(run.embedder))
    if reason is None and current is not None:
        return _strip_new_texts(connection, run, nodes, plain, current), None
    if not is_free(run.embedder):
        return plain, "paid"
    run.calibration, stripped = fit_calibration(run, current, reason or "first", ask_judge=False, given=(nodes, plain))
    return build_grouping_vectors(nodes.ids, plain, stripped, load_stored_vectors(connection, run)), reason


def _strip_new_texts(
    connection: Connection, run: ProjectRun, nodes: Nodes, plain: Vectors, current: Calibration
) -> Vectors:
    """Return the grouping vectors (n, d) under the current calibration; new texts have their boilerplate removed."""
    stored = load_text_hashes(connection, run.project.id, run.embedder.name)
    new = to_uuids(nodes.ids[nodes.graph_version != current.version])
    texts = load_texts(connection, new) if current.boilerplate and is_free(run.embedder) else {}
    stripped = embed_stripped_texts(run, texts, current.boilerplate, known=set(stored.values()))
    hashes = {**{id_: hash_ for id_, hash_ in stored.items() if id_ not in texts}, **stripped.hashes}
    return build_grouping_vectors(
        nodes.ids, plain, replace(stripped, hashes=hashes), load_stored_vectors(connection, run)
    )


def _find_neighbors(connection: Connection, run: ProjectRun, nodes: Nodes, x: Vectors) -> Neighbors:
    """Return the stored pairs that are still valid, and those of new or changed nodes; ``x``: vectors (n, d)."""
    version = -1 if run.calibration is None else run.calibration.version
    known, new = split_known_and_new(nodes, x, version)
    keys = ScreenKeys(connection, run.project.id, version)
    parts = list(compare_nodes(connection, run, nodes, x, known=known, new=new, keys=keys))
    if known.size:
        lowest = run.graph_threshold - SLACK
        stored = similarity_graph.load_neighbors(connection, run.project.id, run.embedder.name, lowest)
        known_ids = nodes.ids[known]
        parts.append(stored.select(np.isin(stored.a, known_ids) & np.isin(stored.b, known_ids)))
    return Neighbors.concatenate(parts) if parts else NO_NEIGHBORS
