"""Effect of feedback on the importance of a memory, which slows down or speeds up its decay."""

from __future__ import annotations

# Two helpful ratings raise the default importance of 0.5 to 0.7. From 0.7 on, a memory is not forgotten.
IMPORTANCE_STEP = 0.1
MAX_IMPORTANCE = 1.0


def adjust_importance(importance: float, *, helpful: bool | None) -> float:
    """Return the importance after one rating: ``IMPORTANCE_STEP`` higher or lower, between 0 and 1.

    None does not change it. An importance above 1, which people may set, is not lowered by a helpful rating.
    """
    if helpful is None:
        return importance
    if helpful:
        return max(importance, min(MAX_IMPORTANCE, round(importance + IMPORTANCE_STEP, 6)))
    return max(0.0, round(importance - IMPORTANCE_STEP, 6))
