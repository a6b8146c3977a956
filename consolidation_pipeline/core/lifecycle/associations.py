"""Association rules: relations between two memories by their types, similarity and ages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.memories.relation_types import ASSOCIATION_TYPES
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs
from consolidation_pipeline.core.vectors import as_matrix

# Limits and confidences of the rules. All limits except the days are strict.
CONTRADICTS_BELOW = 0.3
EXPLAINS_ABOVE = 0.5
SHARES_THEME_ABOVE = 0.7
PARALLEL_BELOW = 0.4
PARALLEL_DAYS = 7.0
CONTRADICTS_CONFIDENCE = 0.6
EXPLAINS_CONFIDENCE = 0.7
PARALLEL_CONFIDENCE = 0.5

INSIGHT_TYPES = ("discovery", "bugfix", "error_fix")
WORK_TYPES = ("refactor", "feature", "codebase_knowledge")

# Roles of memory types in the rules.
OTHER, DECISION, INSIGHT, WORK = 0, 1, 2, 3
_ROLES = {"decision": DECISION} | dict.fromkeys(INSIGHT_TYPES, INSIGHT) | dict.fromkeys(WORK_TYPES, WORK)

# Rules in the order in which they are tried.
NO_RULE, CONTRADICTS, EXPLAINS, SHARES_THEME, PARALLEL = 0, 1, 2, 3, 4
# Number of cosines that ``iter_dissimilar_pairs`` computes at a time: 32 MB.
_BLOCK_SIZE = 4_194_304

Codes = NDArray[np.int8]


@dataclass(frozen=True)
class Association:
    """Relation between two memories: its type, the confidence of the rule (0 to 1), and the rule in words."""

    relation_type: str
    confidence: float
    reason: str


def classify_types(types: Sequence[str] | NDArray[np.str_]) -> Codes:
    """Return the role of each memory type, int8 (n,): ``DECISION``, ``INSIGHT``, ``WORK`` or ``OTHER``."""
    names, at = np.unique(np.asarray(types, dtype=np.str_), return_inverse=True)
    return np.array([_ROLES.get(name, OTHER) for name in names.tolist()], dtype=np.int8)[at.reshape(-1)]


def match_rules(role_a: ArrayLike, role_b: ArrayLike, similarity: ArrayLike, age_gap_days: ArrayLike) -> Codes:
    """Return the first rule that applies to each pair, int8 (m,): ``CONTRADICTS`` to ``PARALLEL``, or ``NO_RULE``.

    The rules are, in this order: two decisions contradict, an insight explains a piece of work, two memories share a
    theme, two memories have a parallel context. The order within a pair does not matter. No rule applies to NaN.

    Args:
        role_a: Role of one memory, see ``classify_types``. All arguments broadcast with each other.
        role_b: Role of the other memory.
        similarity: Cosine similarity of their vectors.
        age_gap_days: Days between the times at which they were learned, of any sign.
    """
    one, other = np.asarray(role_a), np.asarray(role_b)
    alike = np.asarray(similarity, dtype=np.float64)
    gap = np.abs(np.asarray(age_gap_days, dtype=np.float64))
    decisions = (one == DECISION) & (other == DECISION)
    explaining = ((one == INSIGHT) & (other == WORK)) | ((one == WORK) & (other == INSIGHT))
    found = np.select(
        [
            decisions & (alike < CONTRADICTS_BELOW),
            explaining & (alike > EXPLAINS_ABOVE),
            alike > SHARES_THEME_ABOVE,
            (gap <= PARALLEL_DAYS) & (alike < PARALLEL_BELOW),
        ],
        [CONTRADICTS, EXPLAINS, SHARES_THEME, PARALLEL],
        NO_RULE,
    )
    return found.astype(np.int8)


def describe_rule(rule: int, similarity: float) -> Association:
    """Return the relation of a rule, ``CONTRADICTS`` to ``PARALLEL``, between memories of this similarity."""
    confidence, reason = {
        CONTRADICTS: (CONTRADICTS_CONFIDENCE, f"two decisions with a similarity below {CONTRADICTS_BELOW}"),
        EXPLAINS: (EXPLAINS_CONFIDENCE, f"an insight and a piece of work with a similarity above {EXPLAINS_ABOVE}"),
        SHARES_THEME: (min(float(similarity), 1.0), f"a similarity above {SHARES_THEME_ABOVE}"),
        PARALLEL: (
            PARALLEL_CONFIDENCE,
            f"learned at most {PARALLEL_DAYS:g} days apart, with a similarity below {PARALLEL_BELOW}",
        ),
    }[rule]
    return Association(ASSOCIATION_TYPES[rule - 1], confidence, reason)


def sample_weekly(count: int, size: int, *, name: str, now: datetime) -> NDArray[np.int64]:
    """Return a random sample of ``size`` positions below ``count``, ascending; all if there are not more.

    The seed is ``name`` and the ISO week of ``now``, so the sample is the same within a week.
    """
    if count <= size:
        return np.arange(count, dtype=np.int64)
    year, week, _ = now.isocalendar()
    seed = int.from_bytes(sha256(f"{name} {year}-W{week:02d}".encode()).digest()[:8], "big")
    drawn = np.random.default_rng(seed).choice(count, size=size, replace=False)
    return np.sort(drawn).astype(np.int64)


def iter_dissimilar_pairs(x: NDArray[np.floating], limit: float) -> Iterator[SimilarPairs]:
    """Yield all pairs i < j of rows whose cosine is below ``limit``, sorted by (i, j), in blocks.

    All n^2 / 2 cosines are computed, in float64. Memory besides ``x``, float32 (n, d) of length 1: 8 bytes for each of
    its numbers and about 100 MB.
    """
    rows = as_matrix(x).astype(np.float64)
    height = max(_BLOCK_SIZE // max(len(rows), 1), 1)
    for start in range(0, len(rows), height):
        cosines = np.clip(rows[start : start + height] @ rows[start:].T, -1.0, 1.0).astype(np.float32)
        below = np.triu(cosines.astype(np.float64) < limit, 1)
        i, j = np.nonzero(below)
        yield SimilarPairs((i + start).astype(np.int32), (j + start).astype(np.int32), cosines[below])
