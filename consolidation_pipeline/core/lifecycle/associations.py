"""What two memories have to do with each other: four rules on their types, their similarity and their ages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs
from consolidation_pipeline.core.vectors import as_matrix

# The limits and confidences of pipeline.md, associations; all limits but the days are strict, without any slack.
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

# What a type is to the rules.
OTHER, DECISION, INSIGHT, WORK = 0, 1, 2, 3
_ROLES = {"decision": DECISION} | dict.fromkeys(INSIGHT_TYPES, INSIGHT) | dict.fromkeys(WORK_TYPES, WORK)

# The rules in their order; 0 = none of them holds.
NOTHING, CONTRADICTS, EXPLAINS, SHARES_THEME, PARALLEL = 0, 1, 2, 3, 4
RELATION_TYPES = ("contradicts", "explains", "shares_theme", "parallel_context")
# Two unlike decisions are no proof of a contradiction, nor one week one of a context: a person confirms these.
CANDIDATE_TYPES = ("contradicts", "parallel_context")
STATUSES = ("candidate", "confirmed", "rejected")

# Cosines that ``iter_unlike_pairs`` computes at a time: 32 MB.
_BLOCK = 4_194_304

Codes = NDArray[np.int8]


@dataclass(frozen=True)
class Association:
    """A relation between two memories: its type, how sure the rule is of it (0 to 1), and the rule in words."""

    relation_type: str
    confidence: float
    reason: str


def associate(type_a: str, type_b: str, similarity: float, age_gap_days: float) -> Association | None:
    """The relation between two memories of these types, or None. Their order does not matter, nor the gap's sign.

    ``similarity``: cosine of their vectors; ``age_gap_days``: fractional days between the times they were learned. The
    first rule that holds decides, in the order of pipeline.md, associations: ``contradicts``, ``explains`` (the insight
    explains the work), ``shares_theme``, ``parallel_context``. Types that no rule names, and unknown ones, can share a
    theme or a context; NaN meets no rule.
    """
    role_a, role_b = roles((type_a, type_b))
    rule = int(match_rules(role_a, role_b, similarity, age_gap_days))
    return describe(rule, similarity) if rule else None


def roles(types: Sequence[str] | NDArray[np.str_]) -> Codes:
    """What each memory type is to the rules, int8 (n,): ``DECISION``, ``INSIGHT``, ``WORK`` or ``OTHER``."""
    names, at = np.unique(np.asarray(types, dtype=np.str_), return_inverse=True)
    return np.array([_ROLES.get(name, OTHER) for name in names.tolist()], dtype=np.int8)[at.reshape(-1)]


def match_rules(role_a: ArrayLike, role_b: ArrayLike, similarity: ArrayLike, age_gap_days: ArrayLike) -> Codes:
    """The rule that ``associate`` finds for each pair, int8 (m,): ``CONTRADICTS`` .. ``PARALLEL``, or ``NOTHING``.

    ``role_a`` and ``role_b`` are ``roles`` of the two ends; all four broadcast with each other.
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
        NOTHING,
    )
    return found.astype(np.int8)


def describe(rule: int, similarity: float) -> Association:
    """The relation that ``rule``, one of ``CONTRADICTS`` .. ``PARALLEL``, finds between memories of this similarity."""
    confidence, reason = {
        CONTRADICTS: (CONTRADICTS_CONFIDENCE, f"two decisions with a similarity below {CONTRADICTS_BELOW}"),
        EXPLAINS: (EXPLAINS_CONFIDENCE, f"an insight and a piece of work with a similarity above {EXPLAINS_ABOVE}"),
        SHARES_THEME: (min(float(similarity), 1.0), f"a similarity above {SHARES_THEME_ABOVE}"),
        PARALLEL: (
            PARALLEL_CONFIDENCE,
            f"learned at most {PARALLEL_DAYS:g} days apart, with a similarity below {PARALLEL_BELOW}",
        ),
    }[rule]
    return Association(RELATION_TYPES[rule - 1], confidence, reason)


def draw_weekly(count: int, size: int, *, name: str, now: datetime) -> NDArray[np.int64]:
    """``size`` different positions below ``count``, ascending; all where there are no more than ``size``.

    Seeded by ``name`` and the ISO week of ``now``: every week draws anew, and within a week the draw is the same.
    """
    if count <= size:
        return np.arange(count, dtype=np.int64)
    year, week, _ = now.isocalendar()
    seed = int.from_bytes(sha256(f"{name} {year}-W{week:02d}".encode()).digest()[:8], "big")
    drawn = np.random.default_rng(seed).choice(count, size=size, replace=False)
    return np.sort(drawn).astype(np.int64)


def iter_unlike_pairs(x: NDArray[np.floating], limit: float) -> Iterator[SimilarPairs]:
    """All pairs i < j of rows of ``x`` whose cosine is below ``limit``, sorted by (i, j), in blocks.

    ``x``: float32 (n, d), rows of length 1. Every cosine is computed, in float64, n^2 / 2 of them; memory besides ``x``
    is 8 bytes for each number of ``x`` and about 100 MB.
    """
    rows = as_matrix(x).astype(np.float64)
    height = max(_BLOCK // max(len(rows), 1), 1)
    for start in range(0, len(rows), height):
        cosines = np.clip(rows[start : start + height] @ rows[start:].T, -1.0, 1.0).astype(np.float32)
        below = np.triu(cosines.astype(np.float64) < limit, 1)
        i, j = np.nonzero(below)
        yield SimilarPairs((i + start).astype(np.int32), (j + start).astype(np.int32), cosines[below])
