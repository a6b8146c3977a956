"""Classification of similar pairs: they merge, a person decides, or they are at most on one topic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.calibration.model_thresholds import (
    SHORT_TEXT_TOLERANCE,
    UNCALIBRATED_TOLERANCE,
    are_near_duplicates,
    find_profile,
)
from consolidation_pipeline.core.conflicts.conflict_screen import find_conflicting
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, reaches
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
from consolidation_pipeline.core.text.word_overlap import build_word_sets
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.similarity_graph import ASK, MERGE, TOPIC, Nodes

Mask = npt.NDArray[np.bool_]


def classify_pairs(connection: Connection, run: ProjectRun, nodes: Nodes, pairs: SimilarPairs) -> npt.NDArray[np.int16]:
    """Return the verdict (m,) on each pair: MERGE, ASK or TOPIC.

    A pair that reaches ``t_merge`` merges, or is asked about if it has a veto. With an automatic ``t_merge``, it also
    needs words in common, and short texts need a higher cosine. Any other pair is asked about if it has words in common
    or ``t_suggest`` was given.

    Args:
        pairs: pairs of ``nodes`` that reach ``t_suggest`` and whose memory types may share a group.
    """
    rows = np.unique(np.concatenate([pairs.i, pairs.j]))
    ids = to_uuids(nodes.ids[rows])
    loaded = load_texts(connection, ids)
    texts = [loaded[id_] for id_ in ids]
    one, other = (np.searchsorted(rows, side).astype(np.int32) for side in (pairs.i, pairs.j))
    ask, merge = _find_candidates(run, texts, SimilarPairs(one, other, pairs.similarity))
    verdict = np.where(ask, ASK, TOPIC).astype(np.int16)
    vetoed = find_conflicting(texts, one[merge], other[merge])
    verdict[merge] = np.where(vetoed, ASK, MERGE)
    return verdict


def _find_candidates(run: ProjectRun, texts: list[str], pairs: SimilarPairs) -> tuple[Mask, Mask]:
    """Return two masks (m,): pairs that a person may be asked about, and pairs that merge unless there is a veto."""
    calibration, t_merge, boilerplate = run.calibration, run.thresholds["t_merge"], run.boilerplate
    words = build_word_sets([strip_boilerplate(text, boilerplate) for text in texts])
    profile = find_profile(run.embedder.name, centered=calibration is not None and calibration.center is not None)
    shared = words.overlap(pairs.i, pairs.j)
    ask = (shared >= profile.shared_words) | (run.options.t_suggest != "auto")
    if run.options.t_merge != "auto":
        return ask, reaches(pairs.similarity, t_merge)
    is_measured = calibration is not None and calibration.is_measured
    return ask, are_near_duplicates(
        pairs.similarity,
        t_merge,
        words=np.minimum(words.distinct[pairs.i], words.distinct[pairs.j]),
        shared=shared,
        min_shared=profile.shared_words,
        short_text_tolerance=SHORT_TEXT_TOLERANCE if is_measured else UNCALIBRATED_TOLERANCE,
    )
