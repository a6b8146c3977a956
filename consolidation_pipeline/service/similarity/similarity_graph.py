"""Update of the similarity graph: new and changed memories are compared with all others, and no pair twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.similarity.scoped_join import iter_scoped_pairs
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, concatenate_pairs, reaches
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import start_processes
from consolidation_pipeline.service.similarity.calibration import calibrate_thresholds
from consolidation_pipeline.service.similarity.changed_scopes import find_changed_scopes, forget_groups
from consolidation_pipeline.service.similarity.graph_nodes import (
    center_vectors,
    load_graph_nodes,
    scope_keys,
    type_keys,
    variant_keys,
)
from consolidation_pipeline.service.similarity.merge_groups import load_pair_rules
from consolidation_pipeline.service.similarity.pair_classification import classify_pairs
from consolidation_pipeline.service.similarity.pair_judgement import JudgedPairs, judge_graph
from consolidation_pipeline.service.similarity.scope_walls import WallResult, apply_scope_walls
from consolidation_pipeline.service.similarity.screen_keys import ScreenKeys
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.similarity import similarity_graph
from consolidation_pipeline.store.similarity.similarity_graph import (
    ASK,
    MERGE,
    TOPIC,
    ComparedVectors,
    Neighbors,
    Nodes,
)

# Pairs that are written in one block: about 50 MB.
WRITE_BLOCK_PAIRS = 1_000_000
# Pairs that are classified together: about 100 MB. Up to this number of pairs, each text is read once.
CLASSIFY_BLOCK_PAIRS = 8_000_000


@dataclass(frozen=True)
class GraphUpdate:
    """Counts of an update: all nodes, nodes compared by it, and pairs added.

    ``rebuilt``: all nodes were compared again. ``calibration``: version of the calibration. ``walls``: what was of
    several scopes before. ``judged``: decisions of the pair judge, None without one.
    """

    nodes: int
    compared: int
    pairs_added: int
    rebuilt: bool
    calibration: int
    walls: WallResult
    judged: JudgedPairs | None = None


def update_similarity_graph(run: ProjectRun) -> GraphUpdate:
    """Compare the nodes that were not compared yet with all others. The result equals that of a rebuild.

    Scopes that have not changed since their groups were formed are left alone. A node counts as compared if that was
    under the current calibration. The calibration is not renewed here, but made if there is none yet. New memories are
    checked for its boilerplate before they are compared. Then the project's pair judge, if it has one, is asked about
    the pairs that nobody can explain.
    """
    walls = apply_scope_walls(run)
    calibrated = calibrate_thresholds(run, renew=False)
    snapshot, key = calibrated.snapshot, (run.project.id, run.embedder.name)
    with run.transaction() as connection:
        everything = similarity_graph.load_nodes(connection, *key, scope=run.options.scope)
        states = find_changed_scopes(connection, run, everything, load_pair_rules(connection, run.project.id))
        changed = states.select_changed()
        # Patterns and summaries need them, and what follows here waits for the database.
        start_processes(memories=int(changed.sum()), new=int(np.sum(everything.graph_version != snapshot.version)))
        nodes, vectors = load_graph_nodes(connection, run, only=None if changed.all() else everything.ids[changed])
        similarity_graph.prune_neighbors(connection, *key)
        # A memory that came after the check for boilerplate is left to the next update.
        is_checked = (nodes.graph_version == snapshot.version) | np.isin(nodes.ids, calibrated.checked_ids)
        if not is_checked.all():
            nodes, vectors = nodes.select(is_checked), vectors[is_checked]
        known, new = split_known_and_new(nodes, vectors, snapshot.version)
        x = center_vectors(vectors, snapshot)
        keys = ScreenKeys(connection, run.project.id, snapshot.version)
        found = compare_nodes(connection, run, nodes, x, known=known, new=new, keys=keys)
        compared = nodes.ids[new]
        added = similarity_graph.append_neighbors(connection, *key, found, new=compared)
        similarity_graph.mark_compared(connection, compared, snapshot.version, keys.read)
        forget_groups(connection, run, states)
    run.compared = ComparedVectors(run.embedder.name, snapshot.version, nodes.ids, vectors, x)
    judged = judge_graph(run, nodes)
    rebuilt = bool(len(new)) and not (everything.graph_version == snapshot.version).any()
    return GraphUpdate(len(everything), len(new), added, rebuilt, snapshot.version, walls, judged)


def split_known_and_new(
    nodes: Nodes, vectors: Vectors, version: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the positions of the nodes compared under this calibration ``version``, and of the nodes to compare now.

    Exact repeats with equal vectors have the same neighbours, so only one of them is compared.
    """
    known = nodes.graph_version == version
    keys = variant_keys(nodes, vectors)
    order = np.lexsort((np.arange(len(nodes)), ~known, keys))
    first = np.ones(len(nodes), dtype=bool)
    first[1:] = keys[order][1:] != keys[order][:-1]
    is_first = np.zeros(len(nodes), dtype=bool)
    is_first[order[first]] = True
    return np.flatnonzero(known), np.flatnonzero(is_first & ~known)


def compare_nodes(
    connection: Connection,
    run: ProjectRun,
    nodes: Nodes,
    vectors: Vectors,
    *,
    known: npt.NDArray[np.intp],
    new: npt.NDArray[np.intp],
    keys: ScreenKeys,
) -> Iterator[Neighbors]:
    """Yield in blocks the pairs of ``new`` nodes with ``known`` ones and with each other, and their verdicts.

    Nodes of different scopes are not compared. Of pairs across memory types only those are left that a person is asked
    about, as no group has them; all are left if ``cross_type`` is on.

    Args:
        nodes: all nodes, sorted by id.
        vectors: their centred grouping vectors float32 (n, d).
        known: positions of nodes whose pairs are stored.
        new: positions of nodes to compare.
        keys: those of texts that were read before; the others are added.
    """
    if not new.size:
        return
    rows, scopes = np.concatenate([known, new]), scope_keys(nodes)
    waiting: list[SimilarPairs] = []
    classified: list[Neighbors] = []
    for pairs in iter_scoped_pairs(vectors, run.graph_threshold, scopes, rows=rows, known=len(known)):
        # The smaller id comes first. Nodes are sorted by id, so the order of positions is that of ids.
        ordered = SimilarPairs(np.minimum(pairs.i, pairs.j), np.maximum(pairs.i, pairs.j), pairs.similarity)
        is_near = reaches(ordered.similarity, run.thresholds["t_suggest"])
        # No pair below both thresholds merges, and only those that would merge are asked about across types.
        crosses = _cross_types(run, nodes, ordered) & ~reaches(ordered.similarity, run.thresholds["t_merge"])
        far = ordered.select(~is_near & ~crosses)
        classified.append(_neighbors(nodes, far, np.full(len(far), TOPIC, dtype=np.int16)))
        waiting.append(ordered.select(is_near & ~crosses))
        if sum(map(len, classified)) > WRITE_BLOCK_PAIRS:
            yield Neighbors.concatenate(classified)
            classified = []
        if sum(map(len, waiting)) > CLASSIFY_BLOCK_PAIRS:
            yield _classify(connection, run, nodes, waiting, keys)
            waiting = []
    yield Neighbors.concatenate([*classified, _classify(connection, run, nodes, waiting, keys)])


def _classify(
    connection: Connection, run: ProjectRun, nodes: Nodes, waiting: list[SimilarPairs], keys: ScreenKeys
) -> Neighbors:
    pairs = concatenate_pairs(waiting)
    verdict = classify_pairs(connection, run, nodes, pairs, keys)
    crossing = _cross_types(run, nodes, pairs)
    # The same fact under another memory type may be asked about.
    is_read = ~crossing | (verdict == MERGE)
    verdict[crossing] = ASK
    return _neighbors(nodes, pairs.select(is_read), verdict[is_read])


def _cross_types(run: ProjectRun, nodes: Nodes, pairs: SimilarPairs) -> npt.NDArray[np.bool_]:
    """Return True (m,) for each pair of two memory types; never if ``cross_type`` is on."""
    types = type_keys(nodes)
    return np.asarray((types[pairs.i] != types[pairs.j]) & (not run.options.cross_type))


def _neighbors(nodes: Nodes, pairs: SimilarPairs, verdict: npt.NDArray[np.int16]) -> Neighbors:
    return Neighbors(nodes.ids[pairs.i], nodes.ids[pairs.j], pairs.similarity, verdict)
