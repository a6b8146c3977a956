"""What feedback on a memory does: it moves the importance, by which a memory fades later or sooner."""

from __future__ import annotations

# Two helpful words lift a memory of the default importance, 0.5, to where forgetting leaves it alone (0.7).
STEP = 0.1
MOST = 1.0


def weigh_feedback(importance: float, *, helpful: bool | None) -> float:
    """The importance after one word of feedback: ``STEP`` higher or lower, between 0 and 1; None leaves it.

    An importance above 1, which people may set, is not lowered by a helpful word.
    """
    if helpful is None:
        return importance
    if helpful:
        return max(importance, min(MOST, round(importance + STEP, 6)))
    return max(0.0, round(importance - STEP, 6))
