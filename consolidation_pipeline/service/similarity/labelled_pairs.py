"""Pairs of texts whose truth is known, seen as the pipeline sees them: planted ones, and decisions of people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.calibration.synthetic_pairs import SyntheticPair, make_synthetic_pairs
from consolidation_pipeline.core.calibration.threshold_estimates import LabelledPairs
from consolidation_pipeline.core.conflicts.literals import conflicts
from consolidation_pipeline.core.text.word_overlap import read_words
from consolidation_pipeline.core.vectors import center
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.store.database.vector_copy import Vectors

# One seed for all: a project's recommendation changes with its memories, not with the day.
SEED = 0
# Pairs per way of planting, and contents they are made from: enough to tell 3 % from 8 %, and a bounded bill for models
# that are paid for (about two thousand short texts).
PAIRS_PER_KIND = 80
MAX_TEXTS = 2_000
# A large group that was approved says the same thing many times.
_MOST_OF_GROUP = 6

Decision = tuple[Sequence[UUID], bool]


def build_labelled_pairs(
    embedder: Embedder, texts: Sequence[str], mean: Vectors | None, *, decided: Sequence[tuple[str, str, bool]] = ()
) -> LabelledPairs:
    """Planted pairs from the first ``MAX_TEXTS`` of distinct ``texts``, and those that people ``decided`` on.

    ``mean`` (d,) is taken off their vectors; None = vectors as they are.

    Raises:
        EmbeddingError: the model gave no usable vector for a text.
    """
    pairs = make_synthetic_pairs(texts[:MAX_TEXTS], seed=SEED, per_kind=PAIRS_PER_KIND)
    pairs += [SyntheticPair("decided", same, a, b) for a, b, same in decided]
    distinct = sorted({text for pair in pairs for text in (pair.a, pair.b)})
    at = {text: row for row, text in enumerate(distinct)}
    a, b = (np.array([at[getattr(pair, side)] for pair in pairs], dtype=np.int64) for side in ("a", "b"))
    words = read_words(distinct)
    return LabelledPairs(
        similarity=_cosines(embedder, distinct, mean, a, b),
        words=np.minimum(words.distinct[a], words.distinct[b]),
        shared=words.shared(a, b),
        vetoed=np.array([bool(conflicts(pair.a, pair.b)) for pair in pairs], dtype=bool),
        same=np.array([pair.same for pair in pairs], dtype=bool),
        kind=np.array([pair.kind for pair in pairs], dtype=np.str_),
    )


def list_decided_pairs(decisions: Sequence[Decision], texts: Mapping[UUID, str]) -> Iterator[tuple[str, str, bool]]:
    """Pairs of texts that a person found the same or not. Of a rejected group of more than two nobody knows which."""
    for ids, same in decisions:
        known = [texts[id_] for id_ in ids[:_MOST_OF_GROUP] if id_ in texts]
        if len(known) == len(ids[:_MOST_OF_GROUP]) and (same or len(ids) == 2):
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
