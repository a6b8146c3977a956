"""Classification of similar pairs: may merge, a person decides, or on one topic at most."""

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
    """Return the verdict (m,) on pairs of ``nodes`` that reach ``t_suggest`` and whose memory types may share a group.

    A threshold that the operator gave is used as it is. An automatic one also needs words in common, and a higher
    cosine for short texts. A pair that is similar enough but has a veto, or is too short, is for a person.
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
    """Return two masks (m,): pairs that a person may be asked about, and pairs that may merge if there is no veto."""
    calibration, t_merge = run.calibration, run.thresholds["t_merge"]
    sentences = run.boilerplate
    words = build_word_sets([strip_boilerplate(text, sentences) for text in texts] if sentences else texts)
    profile = find_profile(run.embedder.name, centered=calibration is not None and calibration.center is not None)
    shared = words.overlap(pairs.i, pairs.j)
    tolerance = SHORT_TEXT_TOLERANCE if calibration is not None and calibration.is_measured else UNCALIBRATED_TOLERANCE
    if run.options.t_merge == "auto":
        merge = are_near_duplicates(
            pairs.similarity,
            t_merge,
            words=np.minimum(words.distinct[pairs.i], words.distinct[pairs.j]),
            shared=shared,
            min_shared=profile.shared_words,
            short_text_tolerance=tolerance,
        )
    else:
        merge = reaches(pairs.similarity, t_merge)
    return (shared >= profile.shared_words) | (run.options.t_suggest != "auto"), merge
