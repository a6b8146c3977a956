"""Classification of similar pairs: they merge, a person decides, or they are at most on one topic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.calibration.model_thresholds import find_profile
from consolidation_pipeline.core.differences.pair_screen import judge_pairs, screen_pairs, split_pairs
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, reaches
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
from consolidation_pipeline.core.text.word_overlap import build_word_sets
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.service.similarity.screen_keys import ScreenKeys
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.similarity_graph import ASK, MERGE, TOPIC, Nodes

Positions = npt.NDArray[np.int32]

# Pairs that a worker process judges at a time. Texts in several portions are read in each.
_PORTION_PAIRS = 5_000


def classify_pairs(
    connection: Connection, run: ProjectRun, nodes: Nodes, pairs: SimilarPairs, keys: ScreenKeys
) -> npt.NDArray[np.int16]:
    """Return the verdict (m,) on each pair: MERGE, ASK or TOPIC.

    A pair that reaches ``t_merge`` merges if every difference of its texts is harmless. Any other pair is asked about
    if it has words in common or ``t_suggest`` was given.

    Args:
        pairs: pairs of ``nodes`` that reach ``t_suggest`` and whose memory types may share a group.
        keys: those of texts that were read before; the others are added.
    """
    rows = np.unique(np.concatenate([pairs.i, pairs.j]))
    ids = to_uuids(nodes.ids[rows])
    loaded = load_texts(connection, ids)
    texts = [loaded[id_] for id_ in ids]
    one, other = (np.searchsorted(rows, side).astype(np.int32) for side in (pairs.i, pairs.j))
    words = build_word_sets([strip_boilerplate(text, run.boilerplate) for text in texts])
    calibration = run.calibration
    profile = find_profile(run.embedder.name, centered=calibration is not None and calibration.center is not None)
    may_ask = (words.overlap(one, other) >= profile.shared_words) | (run.options.t_suggest != "auto")
    verdict = np.where(may_ask, ASK, TOPIC).astype(np.int16)
    near = np.flatnonzero(reaches(pairs.similarity, run.thresholds["t_merge"]))
    verdict[near[_find_mergeable(nodes.ids[rows], texts, one[near], other[near], keys)]] = MERGE
    return verdict


def _find_mergeable(
    ids: Ids, texts: Sequence[str], i: Positions, j: Positions, keys: ScreenKeys
) -> npt.NDArray[np.bool_]:
    """Return for each pair (m,) if its texts may become one. Many pairs are shared among the cores.

    In a large project a text is in hundreds of pairs. It is read once to screen them, and not again by later runs; few
    pairs are left to be judged.
    """
    if not len(i):
        return np.zeros(0, dtype=np.bool_)
    used, i, j = _number_texts(i, j)
    ids, texts = ids[used], [texts[at] for at in used.tolist()]
    found = screen_pairs(keys.find(ids, texts), i, j)
    near = np.flatnonzero(found)
    parts = [near[part] for part in split_pairs(len(texts), i[near], j[near], size=_PORTION_PAIRS)]
    portions = (_take_portion(texts, i[part], j[part]) for part in parts)
    judged = compute_in_order(_judge_portion, portions, memories=len(near))
    for part, mergeable in zip(parts, judged, strict=True):
        found[part] = mergeable
    return found


def _take_portion(texts: Sequence[str], i: Positions, j: Positions) -> tuple[list[str], Positions, Positions]:
    """Return the texts of some pairs, and the positions of the pairs among them."""
    used, first, second = _number_texts(i, j)
    return [texts[at] for at in used.tolist()], first, second


def _number_texts(i: Positions, j: Positions) -> tuple[npt.NDArray[np.int32], Positions, Positions]:
    """Return the positions of the texts of some pairs, ascending, and the positions of the pairs among these."""
    used, places = np.unique(np.concatenate([i, j]), return_inverse=True)
    first, second = np.split(places.reshape(-1).astype(np.int32), 2)
    return used, first, second


def _judge_portion(portion: tuple[list[str], Positions, Positions]) -> npt.NDArray[np.bool_]:
    return judge_pairs(*portion, word_similarity)
