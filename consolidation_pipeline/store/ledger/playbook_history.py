"""SQL of the playbook as it was at a time, read from the ledger."""

from __future__ import annotations

from datetime import datetime
from typing import Any

_NOW = "consolidation.playbook_entries"
# The first change after that time tells for each column what it was before. Parentheses make it a table.
_THEN = """(
    SELECT old.* FROM consolidation.playbook_entries now
        LEFT JOIN LATERAL (
            SELECT jsonb_object_agg(first.key, first.value) AS state FROM (
                SELECT DISTINCT ON (column_.key) column_.key, column_.value
                FROM consolidation.consolidation_changes c, jsonb_each(c.previous_state) column_
                WHERE c.entity_id = now.id AND c.changed_at > :as_of
                ORDER BY column_.key, c.seq) first) before ON true,
        LATERAL jsonb_populate_record(now, coalesce(before.state, '{}')) old
    WHERE now.project_id = :project AND now.created_at <= :as_of)"""


def entries_as_of(as_of: datetime | None) -> str:
    """Return SQL of the table of playbook entries, as they were at a time if one is given.

    It binds ``project`` and ``as_of``. Entries that were undone since are missing; what the ledger no longer keeps is
    as it is now.
    """
    return _NOW if as_of is None else _THEN


def as_of_parameters(as_of: datetime | None) -> dict[str, Any]:
    """Return the parameters of ``entries_as_of`` beside ``project``."""
    return {} if as_of is None else {"as_of": as_of}
