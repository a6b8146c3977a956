"""Archive policies: staleness, forgetting with its protections, and the limit for runs without a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.arrays import Arrays
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES, check_memory_type
from consolidation_pipeline.core.vectors import check_numbers

STALENESS, FORGOTTEN = "staleness", "forgotten"
# Memories that forgetting does not archive: of this importance, idle for less than this, or of these types.
PROTECTED_IMPORTANCE = 0.7
PROTECTED_DAYS = 90.0
PROTECTED_TYPES = ("decision", "discovery")
# The limit does not apply to fewer units: most of a few may be old, and a person can check them.
MIN_LIMITED_UNITS = 20

# More than the rounding error of a share times a count.
_ROUNDING = 1e-9


def is_stale(
    idle_days: ArrayLike,
    reused_count: ArrayLike,
    pinned: ArrayLike,
    *,
    stale_days: float = 90.0,
    min_reuse: int = 3,
) -> NDArray[np.bool_]:
    """Return True for memories that are idle for ``stale_days``, reused less than ``min_reuse`` times and not pinned.

    Inputs (n,) broadcast with scalars. ``idle_days``: days since the last use or the import, whichever is later. NaN
    and negative values raise ValueError.
    """
    idle = check_numbers("idle_days", idle_days, minimum=0)
    reused = check_numbers("reused_count", reused_count, minimum=0)
    stale: NDArray[np.bool_] = (idle >= stale_days) & (reused < min_reuse) & ~np.asarray(pinned, dtype=bool)
    return stale


def is_forgettable(
    importance: ArrayLike,
    idle_days: ArrayLike,
    memory_type: str | NDArray[np.str_],
    relevance: ArrayLike,
    pinned: ArrayLike,
    *,
    threshold: float = 0.01,
) -> NDArray[np.bool_]:
    """Return True for memories with a relevance below ``threshold`` that nothing protects.

    Protected are pinned memories, an importance of 0.7 or more, a last use or an import in the last 90 days, decisions
    and discoveries.
    Inputs (n,) broadcast with scalars. NaN and negative values raise ValueError, unknown types InvalidMemoryError.
    """
    worth = check_numbers("importance", importance, minimum=0)
    idle = check_numbers("idle_days", idle_days, minimum=0)
    score = check_numbers("relevance", relevance, minimum=0)
    kind = np.asarray(memory_type)
    for unknown in kind[~np.isin(kind, MEMORY_TYPES)][:1]:
        check_memory_type(str(unknown))
    protected = (worth >= PROTECTED_IMPORTANCE) | (idle < PROTECTED_DAYS) | np.isin(kind, PROTECTED_TYPES)
    forgettable: NDArray[np.bool_] = (score < threshold) & ~protected & ~np.asarray(pinned, dtype=bool)
    return forgettable


def exceeds_share(taken: int, units: int, *, max_share: float) -> bool:
    """Return True if ``taken`` is more than ``max_share`` of at least 20 ``units``: the run then needs a plan."""
    return units >= MIN_LIMITED_UNITS and taken > max_share * units + _ROUNDING


@dataclass(frozen=True)
class ArchiveUnits(Arrays):
    """Active raw and merged memories with the inputs of the policies, as arrays (n,).

    ``idle_days``: days since the last use or the import, fractional and not negative. ``pinned`` includes memories that
    a person restored recently. ``relevance`` is infinite if it was not computed yet. ``memories``: number of raw
    memories, 1 for a raw memory itself.
    """

    idle_days: NDArray[np.float64]
    reused_count: NDArray[np.int64]
    pinned: NDArray[np.bool_]
    importance: NDArray[np.float64]
    memory_type: NDArray[np.str_]
    relevance: NDArray[np.float64]
    memories: NDArray[np.int64]


@dataclass(frozen=True)
class ArchivePolicies:
    """Enabled policies and their limits."""

    staleness: bool = True
    forgetting: bool = False
    stale_days: float = 90.0
    min_reuse: int = 3
    forget_threshold: float = 0.01


@dataclass(frozen=True)
class ArchivePlan:
    """Units to archive: their positions ``rows`` (m,), ascending, and the ``reasons`` (m,)."""

    rows: NDArray[np.intp]
    reasons: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.rows)


def plan_archives(units: ArchiveUnits, policies: ArchivePolicies) -> ArchivePlan:
    """Select the units to archive. A unit that both policies select counts as forgotten, the stricter policy."""
    stale = forgotten = np.zeros(len(units), dtype=bool)
    if policies.staleness:
        unused = (units.idle_days, units.reused_count, units.pinned)
        stale = is_stale(*unused, stale_days=policies.stale_days, min_reuse=policies.min_reuse)
    if policies.forgetting:
        judged = (units.importance, units.idle_days, units.memory_type, units.relevance, units.pinned)
        forgotten = is_forgettable(*judged, threshold=policies.forget_threshold)
    rows = np.flatnonzero(stale | forgotten)
    return ArchivePlan(rows, np.where(forgotten[rows], FORGOTTEN, STALENESS))


def explain_archives(units: ArchiveUnits, plan: ArchivePlan) -> list[str]:
    """Return in words why each unit of the plan is archived."""
    return [
        _explain_forgotten(units, row) if reason == FORGOTTEN else _explain_stale(units, row)
        for row, reason in zip(plan.rows.tolist(), plan.reasons.tolist(), strict=True)
    ]


def _explain_stale(units: ArchiveUnits, row: int) -> str:
    reused = int(units.reused_count[row])
    return f"not used for {int(units.idle_days[row])} days, {reused} {'reuse' if reused == 1 else 'reuses'}"


def _explain_forgotten(units: ArchiveUnits, row: int) -> str:
    relevance, importance = units.relevance[row], units.importance[row]
    return f"relevance {relevance:.3g} after {int(units.idle_days[row])} days without use, importance {importance:.3g}"


def merge_units(units: ArchiveUnits, labels: NDArray[np.integer]) -> ArchiveUnits:
    """Return the units (g,) that a merge of the groups ``labels`` (n,), 0 to g - 1, would make, in that order.

    A merged unit has the sum of the uses and of the memories, the highest importance and the last use of its group, and
    the memory type of its first unit. It is not forgotten, because it has no relevance yet.
    """
    size = int(labels.max(initial=-1)) + 1
    idle = np.full(size, np.inf)
    np.minimum.at(idle, labels, units.idle_days)
    importance, pinned = np.zeros(size), np.zeros(size, dtype=bool)
    np.maximum.at(importance, labels, units.importance)
    np.logical_or.at(pinned, labels, units.pinned)
    reused = np.zeros(size, dtype=np.int64)
    np.add.at(reused, labels, units.reused_count)
    memories = np.zeros(size, dtype=np.int64)
    np.add.at(memories, labels, units.memories)
    first = np.unique(labels, return_index=True)[1]
    return ArchiveUnits(idle, reused, pinned, importance, units.memory_type[first], np.full(size, np.inf), memories)


def forecast_staleness(units: ArchiveUnits, policies: ArchivePolicies, as_of: datetime) -> dict[date, int]:
    """Return how many raw memories become stale on which later date if they are not used until then, ascending."""
    if not policies.staleness:
        return {}
    now, unused = (
        is_stale(days, units.reused_count, units.pinned, stale_days=policies.stale_days, min_reuse=policies.min_reuse)
        for days in (units.idle_days, np.full(len(units), np.inf))
    )
    waiting = units.select(unused & ~now)
    dates = Counter[date]()
    for idle, memories in zip(waiting.idle_days.tolist(), waiting.memories.tolist(), strict=True):
        dates[(as_of + timedelta(days=policies.stale_days - idle)).date()] += memories
    return dict(sorted(dates.items()))
