"""Which memories are archived: staleness, forgetting with its protections, and the brake on doing it unasked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES, check_memory_type
from consolidation_pipeline.core.vectors import check_numbers

STALENESS, FORGOTTEN = "staleness", "forgotten"
# What protects from being forgotten (pipeline.md, archived_memories).
PROTECTED_IMPORTANCE = 0.7
PROTECTED_DAYS = 90.0
PROTECTED_TYPES = ("decision", "discovery")
# Of a handful of memories most may well be old; the brake is for stores that nobody looks through by hand.
FEWEST_BRAKED = 20

# A share times a count is off by less than this.
_ROUNDING = 1e-9


def is_stale(
    idle_days: ArrayLike,
    reused_count: ArrayLike,
    pinned: ArrayLike,
    *,
    stale_days: float = 90.0,
    min_reuse: int = 3,
) -> bool | NDArray[np.bool_]:
    """Whether memories went unused: idle ``stale_days`` or longer, reused less than ``min_reuse`` times and not pinned.

    ``idle_days`` are fractional days since the last access, or since it was learned when there was none. Scalars give
    a bool, arrays of shape (n,), which broadcast with scalars, bool (n,). ValueError: a NaN or negative input.
    """
    idle = check_numbers("idle_days", idle_days, minimum=0)
    reused = check_numbers("reused_count", reused_count, minimum=0)
    return _plain((idle >= stale_days) & (reused < min_reuse) & ~np.asarray(pinned, dtype=bool))


def is_forgettable(
    importance: ArrayLike,
    age_days: ArrayLike,
    memory_type: str | NDArray[np.str_],
    relevance: ArrayLike,
    pinned: ArrayLike,
    *,
    threshold: float = 0.01,
) -> bool | NDArray[np.bool_]:
    """Whether memories may be forgotten: relevance below ``threshold``, and nothing protects them.

    Protected are pinned ones, importance of at least 0.7, an age below 90 days, decisions and discoveries. Relevance is
    what decay made of a memory and protects nothing. Scalars give a bool, arrays of shape (n,), which broadcast with
    scalars, bool (n,). ValueError: a NaN or negative input; InvalidMemoryError: an unknown memory type.
    """
    worth = check_numbers("importance", importance, minimum=0)
    age = check_numbers("age_days", age_days, minimum=0)
    score = check_numbers("relevance", relevance, minimum=0)
    kind = np.asarray(memory_type)
    for unknown in kind[~np.isin(kind, MEMORY_TYPES)][:1]:
        check_memory_type(str(unknown))
    protected = (worth >= PROTECTED_IMPORTANCE) | (age < PROTECTED_DAYS) | np.isin(kind, PROTECTED_TYPES)
    return _plain((score < threshold) & ~protected & ~np.asarray(pinned, dtype=bool))


def exceeds_share(taken: int, units: int, *, max_share: float) -> bool:
    """Whether archiving ``taken`` of ``units`` memories needs a person: more than ``max_share`` of at least 20."""
    return units >= FEWEST_BRAKED and taken > max_share * units + _ROUNDING


@dataclass(frozen=True)
class Units:
    """What is judged, active raw memories and active merged memories, as arrays of shape (n,).

    Days are fractional and not negative. ``pinned`` includes what a person brought back of late; ``relevance`` is
    infinite where it was never scored.
    """

    idle_days: NDArray[np.float64]
    reused_count: NDArray[np.int64]
    pinned: NDArray[np.bool_]
    importance: NDArray[np.float64]
    age_days: NDArray[np.float64]
    memory_type: NDArray[np.str_]
    relevance: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.idle_days)

    def select(self, rows: NDArray[Any]) -> Units:
        """The units at ``rows`` (indices or mask)."""
        return Units(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def concatenate_units(parts: Sequence[Units]) -> Units:
    """All units of one or more parts, one after the other."""
    return Units(*(np.concatenate([getattr(p, name) for p in parts]) for name in Units.__dataclass_fields__))


@dataclass(frozen=True)
class Policies:
    """Which policies are in force, and their limits."""

    staleness: bool = True
    forgetting: bool = False
    stale_days: float = 90.0
    min_reuse: int = 3
    forget_threshold: float = 0.01


@dataclass(frozen=True)
class ArchivePlan:
    """What the policies take: positions ``rows`` (m,) of the units, ascending; ``reasons`` (m,) beside them."""

    rows: NDArray[np.intp]
    reasons: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.rows)


def plan_archives(units: Units, policies: Policies) -> ArchivePlan:
    """The units that the policies take; what both take is forgotten, the stricter of the two."""
    stale = forgotten = np.zeros(len(units), dtype=bool)
    if policies.staleness:
        unused = (units.idle_days, units.reused_count, units.pinned)
        stale = np.asarray(is_stale(*unused, stale_days=policies.stale_days, min_reuse=policies.min_reuse))
    if policies.forgetting:
        judged = (units.importance, units.age_days, units.memory_type, units.relevance, units.pinned)
        forgotten = np.asarray(is_forgettable(*judged, threshold=policies.forget_threshold))
    rows = np.flatnonzero(stale | forgotten)
    return ArchivePlan(rows, np.where(forgotten[rows], FORGOTTEN, STALENESS))


def explain_archives(units: Units, plan: ArchivePlan) -> list[str]:
    """Why each unit of the plan is archived, in words."""
    explained = zip(plan.rows.tolist(), plan.reasons.tolist(), strict=True)
    return [_forgotten(units, row) if reason == FORGOTTEN else _stale(units, row) for row, reason in explained]


def _stale(units: Units, row: int) -> str:
    reused = int(units.reused_count[row])
    return f"not used for {int(units.idle_days[row])} days, {reused} {'reuse' if reused == 1 else 'reuses'}"


def _forgotten(units: Units, row: int) -> str:
    relevance, importance = units.relevance[row], units.importance[row]
    return f"relevance {relevance:.3g} after {int(units.age_days[row])} days, importance {importance:.3g}"


def merge_units(units: Units, labels: NDArray[np.integer]) -> Units:
    """The units (g,) that merging would make of ``units`` (n,): ``labels`` (n,) name the group of each, 0..g-1.

    As merged memories are made and judged: uses add up, the most important, the latest used and the oldest count. The
    memory type is that of the group's first unit; what was never scored is not forgotten.
    """
    size = int(labels.max(initial=-1)) + 1
    latest, oldest = np.full(size, np.inf), np.zeros(size)
    # A merged memory is as idle as its newest source is old, when that was never used.
    np.minimum.at(latest, labels, np.minimum(units.idle_days, units.age_days))
    np.maximum.at(oldest, labels, units.age_days)
    importance, pinned = np.zeros(size), np.zeros(size, dtype=bool)
    np.maximum.at(importance, labels, units.importance)
    np.logical_or.at(pinned, labels, units.pinned)
    reused = np.zeros(size, dtype=np.int64)
    np.add.at(reused, labels, units.reused_count)
    first = np.unique(labels, return_index=True)[1]
    return Units(latest, reused, pinned, importance, oldest, units.memory_type[first], np.full(size, np.inf))


def _plain(decided: NDArray[np.bool_]) -> bool | NDArray[np.bool_]:
    return bool(decided) if np.ndim(decided) == 0 else decided
