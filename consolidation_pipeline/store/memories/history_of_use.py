"""SQL of the instants from which the age and the disuse of a memory count.

A memory that nobody could find has no history of use: that it was not used says nothing. So its age counts from its
import, however old its text is, unless the import brought a use count with the time of the last use.
"""

from __future__ import annotations

from consolidation_pipeline.store.memories.pending_uses import last_use_with_pending


def age_start(row: str) -> str:
    """Return SQL of the instant from which the age of the raw memory ``row`` counts.

    A last use before the row was stored came with its import: its source recorded uses, and the age counts from when
    the memory was learned.
    """
    return (
        f"CASE WHEN {row}.reused_count > 0 AND {row}.last_accessed_at < {row}.created_at THEN {row}.learned_at "
        f"ELSE greatest({row}.learned_at, {row}.created_at) END"
    )


def idle_start(row: str) -> str:
    """Return SQL of the instant since which the raw memory ``row`` was not used."""
    # Without a last use, greatest() ignores the null.
    return f"greatest({last_use_with_pending(row)}, {age_start(row)})"
