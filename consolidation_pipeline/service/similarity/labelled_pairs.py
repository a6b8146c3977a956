"""Labelled pairs for calibration: synthetic pairs and decisions of people, with their similarities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.calibration.synthetic_pairs import SyntheticPair, make_synthetic_pairs
from consolidation_pipeline.core.calibration.threshold_estimates import LabelledPairs
from consolidation_pipeline.core.literals.literals import conflicts
from consolidation_pipeline.core.text.word_overlap import build_word_sets
from consolidation_pipeline.core.vectors import center
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.store.database.vector_copy import Vectors

# Fixed, so that a project's thresholds change with its memories alone.
SEED = 0
# Synthetic pairs per kind, and texts that they are made from. Enough to tell an error rate of 3 % from one of 8 %, at a
# bounded bill for paid models (about two thousand short texts).
PAIRS_PER_KIND = 80
MAX_TEXTS = 2_000
# Memories used of a large approved group, as the others repeat the same.
_MAX_GROUP_MEMORIES = 6

# The memories of a group, and True if a person found that they say the same.
Decision = tuple[Sequence[UUID], bool]


def build_labelled_pairs(
    embedder: Embedder, texts: Sequence[str], mean: Vectors | None, *, decided: Sequence[tuple[str, str, bool]] = ()
) -> LabelledPairs:
    """Return labelled pairs: synthetic ones from the first ``MAX_TEXTS`` texts, and those that people decided on.

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
    x = embedder.embed(distinct) if distinct else np.empty((0, 0), np.float32)
    x = center(x, mean) if distinct and mean is not None else x
    return LabelledPairs(
        similarity=np.asarray(np.einsum("ij,ij->i", x[a].astype(np.float64), x[b].astype(np.float64))),
        words=np.minimum(words.distinct[a], words.distinct[b]),
        shared=words.overlap(a, b),
        vetoed=np.array([bool(conflicts(pair.a, pair.b)) for pair in pairs], dtype=bool),
        same=np.array([pair.same for pair in pairs], dtype=bool),
        kind=np.array([pair.kind for pair in pairs], dtype=np.str_),
    )


def list_decided_pairs(decisions: Sequence[Decision], texts: Mapping[UUID, str]) -> Iterator[tuple[str, str, bool]]:
    """Yield two texts and True if a person found them to be the same.

    Rejected groups of more than two are left out: nobody knows which of their pairs differ.
    """
    for ids, same in decisions:
        used = ids[:_MAX_GROUP_MEMORIES]
        if all(id_ in texts for id_ in used) and (same or len(ids) == 2):
            yield from ((a, b, same) for a, b in combinations([texts[id_] for id_ in used], 2) if a != b)
