"""What a run would group, in memory: everything up to the writes, on the same functions.

Memories without a vector get one here, a calibration that is due is taken, what was not compared is compared. No paid
call is made: what a paid model has not embedded yet is left out and counted.
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
from consolidation_pipeline.service.similarity.merge_groups import Contents, build_contents
from consolidation_pipeline.service.similarity.similarity_graph import compare_nodes, split_known_and_new
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_uuids
from consolidation_pipeline.store.ledger.cannot_link import load_cannot_links
from consolidation_pipeline.store.memories.memories import load_reusable, load_texts
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.calibrations import Calibration
from consolidation_pipeline.store.similarity.grouping_vectors import load_text_hashes
from consolidation_pipeline.store.similarity.similarity_graph import Neighbors, Nodes, concatenate_neighbors


@dataclass(frozen=True, eq=False)
class GroupingPreview:
    """What would be grouped. ``unembedded``: memories that a paid model has to embed first, ``usage`` what that would
    be billed; ``calibration``: why one was taken here, None = the one that is held does, "paid" = one is due that only
    a paid model can take, so the profile's thresholds stand in for it.
    """

    contents: Contents
    unembedded: Sequence[UUID]
    usage: Usage
    calibration: str | None


def preview_grouping(run: ProjectRun) -> GroupingPreview:
    """The contents as a run that began now would group them; puts the calibration it would hold on ``run``.

    Raises:
        EmbeddingError: the model gave no usable vector.
    """
    with run.engine.connect() as connection:
        nodes, plain, left_out = _embed(connection, run)
        vectors, trigger = _calibrate(connection, run, nodes, plain)
        x = vectors if run.calibration is None else center_vectors(vectors, run.calibration)
        found = _find_neighbors(connection, run, nodes, x)
        cannot_link = load_cannot_links(connection, run.project.id)
    contents = build_contents(run, nodes, x, found, cannot_link=cannot_link)
    return GroupingPreview(contents, list(left_out), run.embedder.estimate(list(left_out.values())), trigger)


def _embed(connection: Connection, run: ProjectRun) -> tuple[Nodes, Vectors, dict[UUID, str]]:
    """All nodes that have a vector or get one for nothing, their plain vectors (n, d), and the texts left out by id."""
    project, model = run.project.id, run.embedder.name
    nodes = similarity_graph.load_nodes(connection, project, None)
    dimension = similarity_graph.load_dimension(connection, project, model)
    held, known = similarity_graph.load_nodes_with_vectors(connection, project, model, plain=True)
    parts = [(held.ids, known)] if dimension else []
    missing = _missing(nodes.ids, parts)
    # What another model's graph knows of them does not count.
    nodes = replace(nodes, graph_version=np.where(np.isin(nodes.ids, missing), -1, nodes.graph_version))
    loaded = load_texts(connection, to_uuids(missing))
    texts = {id_: loaded[uuid] for id_, uuid in zip(missing.tolist(), to_uuids(missing), strict=True)}
    if texts and is_free(run.embedder):
        parts.append((missing, run.embedder.embed(list(texts.values()))))
    elif texts and dimension:
        parts.append(load_reusable(connection, project, model, dimension))
    left_out = {id_: loaded[id_] for id_ in to_uuids(_missing(nodes.ids, parts))}
    found = np.concatenate([np.empty(0, dtype="S16"), *(ids for ids, _ in parts)])
    vectors = np.concatenate([part for _, part in parts]) if parts else np.empty((0, 0), np.float32)
    order = np.argsort(found)
    order = order[np.isin(found[order], nodes.ids)]
    return nodes.select(np.isin(nodes.ids, found)), vectors[order], left_out


def _missing(ids: Ids, parts: Sequence[tuple[Ids, Vectors]]) -> Ids:
    return ids[~np.isin(ids, np.concatenate([np.empty(0, dtype="S16"), *(known for known, _ in parts)]))]


def _calibrate(connection: Connection, run: ProjectRun, nodes: Nodes, plain: Vectors) -> tuple[Vectors, str | None]:
    """Vectors for grouping (n, d), not centred, and why a calibration was taken; puts the one in force on ``run``."""
    held = run.calibration
    trigger = find_renewal_reason(held, run, lambda: count_units(nodes), renew=is_free(run.embedder))
    if trigger is None and held is not None:
        return _reworded(connection, run, nodes, plain, held), None
    if not is_free(run.embedder):
        return plain, "paid"
    run.calibration, wording = fit_calibration(run, held, trigger or "first", given=(nodes, plain))
    return build_grouping_vectors(nodes.ids, plain, wording, load_stored_vectors(connection, run)), trigger


def _reworded(connection: Connection, run: ProjectRun, nodes: Nodes, plain: Vectors, held: Calibration) -> Vectors:
    """The vectors for grouping under the calibration that is held; what is new has its boilerplate left out."""
    stored = load_text_hashes(connection, run.project.id, run.embedder.name)
    fresh = to_uuids(nodes.ids[nodes.graph_version != held.version])
    texts = load_texts(connection, fresh) if held.boilerplate and is_free(run.embedder) else {}
    new = embed_stripped_texts(run, texts, held.boilerplate, known=set(stored.values()))
    hashes = {**{id_: hash_ for id_, hash_ in stored.items() if id_ not in texts}, **new.hashes}
    return build_grouping_vectors(nodes.ids, plain, replace(new, hashes=hashes), load_stored_vectors(connection, run))


def _find_neighbors(connection: Connection, run: ProjectRun, nodes: Nodes, x: Vectors) -> Neighbors:
    """The stored pairs that still hold, and those of what is new or moved; ``x``: vectors (n, d) that are compared."""
    version = -1 if run.calibration is None else run.calibration.version
    known, new = split_known_and_new(nodes, x, version)
    parts = list(compare_nodes(connection, run, nodes, x, known=known, new=new))
    if known.size:
        lowest = run.thresholds["t_pattern"] - SLACK
        stored = similarity_graph.load_neighbors(connection, run.project.id, run.embedder.name, lowest)
        held = nodes.ids[known]
        parts.append(stored.select(np.isin(stored.a, held) & np.isin(stored.b, held)))
    return concatenate_neighbors(parts)
