"""Changes that an erasure emptied: they cannot be undone, as what they would bring back is gone for good."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

# An erasure leaves `erased` in the images of what it removed. Its own changes of what stayed are final too.
_LIST_ERASED = """
    SELECT c.seq FROM consolidation.consolidation_changes c
    WHERE c.seq = ANY(:changes) AND (c.operation = 'erase' OR EXISTS (
        SELECT 1 FROM consolidation.consolidation_changes e
        WHERE e.group_id = c.group_id AND (
            coalesce(e.previous_state ? 'erased', false) OR coalesce(e.new_state ? 'erased', false))))
"""


def list_erased(connection: Connection, changes: Sequence[int]) -> set[int]:
    """Return those of the changes, by ``seq``, that an erasure made or whose group it emptied a part of."""
    return set(connection.scalars(text(_LIST_ERASED), {"changes": list(changes)}))
