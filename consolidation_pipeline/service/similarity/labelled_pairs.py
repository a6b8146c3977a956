"""Labelled pairs for calibration: synthetic pairs and decisions of people, with their similarities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.calibration.synthetic_pairs import SyntheticPair, make_synthetic_pairs
from consolidation_pipeline.core.calibration.threshold_estimates import LabelledPairs
from consolidation_pipeline.core.conflicts.literals import conflicts
from consolidation_pipeline.core.text.word_overlap import build_word_sets
from consolidation_pipeline.core.vectors import center
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.store.database.vector_copy import Vectors

# A fixed seed: a project's recommendation changes with its memories alone.
SEED = 0
# Synthetic pairs per kind, and texts that they are made from. Enough to tell 3 % from 8 %, and a bounded bill for paid
# models (about two thousand short texts).
PAIRS_PER_KIND = 80
MAX_TEXTS = 2_000
# Memories used of a large approved group: the others repeat the same.
_MAX_GROUP_MEMORIES = 6

Decision = tuple[Sequence[UUID], bool]


def build_labelled_pairs(
    embedder: Embedder, texts: Sequence[str], mean: Vectors | None, *, decided: Sequence[tuple[str, str, bool]] = ()
) -> LabelledPairs:
    """Return labelled pairs: synthetic ones from the first ``MAX_TEXTS`` distinct texts, and those that people decided
    on.

    Args:
        texts: distinct texts of the project.
        mean: mean vector (d,) that is subtracted from their vectors; None = vectors as they are.
        decided: pairs of texts, True = the same.

    Raises:
        EmbeddingError: the model gave no usable vector for a text.
    """
    pairs = make_synthetic_pairs(texts[:MAX_TEXTS], seed=SEED, per_kind=PAIRS_PER_KIND)
    pairs += [SyntheticPair("decided", same, a, b) for a, b, same in decided]
    distinct = sorted({text for pair in pairs for text in (pair.a, pair.b)})
    at = {text: row for row, text in enumerate(distinct)}
    a, b = (np.array([at[getattr(pair, side)] for pair in pairs], dtype=np.int64) for side in ("a", "b"))
    words = build_word_sets(distinct)
    return LabelledPairs(
        similarity=_cosines(embedder, distinct, mean, a, b),
        words=np.minimum(words.distinct[a], words.distinct[b]),
        shared=words.overlap(a, b),
        vetoed=np.array([bool(conflicts(pair.a, pair.b)) for pair in pairs], dtype=bool),
        same=np.array([pair.same for pair in pairs], dtype=bool),
        kind=np.array([pair.kind for pair in pairs], dtype=np.str_),
    )


def list_decided_pairs(decisions: Sequence[Decision], texts: Mapping[UUID, str]) -> Iterator[tuple[str, str, bool]]:
    """Yield pairs of texts that a person found to be the same or not.

    Rejected groups of more than two are left out: nobody knows which of their pairs differ.
    """
    for ids, same in decisions:
        known = [texts[id_] for id_ in ids[:_MAX_GROUP_MEMORIES] if id_ in texts]
        if len(known) == len(ids[:_MAX_GROUP_MEMORIES]) and (same or len(ids) == 2):
            yield from ((a, b, same) for a, b in combinations(known, 2) if a != b)


def _cosines(
    embedder: Embedder,
    texts: Sequence[str],
    mean: Vectors | None,
    a: npt.NDArray[np.int64],
    b: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    if not texts:
        return np.empty(0)
    x = embedder.embed(texts)
    x = x if mean is None else center(x, mean)
    return np.asarray(np.einsum("ij,ij->i", x[a].astype(np.float64), x[b].astype(np.float64)))
