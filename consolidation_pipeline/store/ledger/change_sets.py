"""Change sets of jobs, read from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.jobs.change_set import ChangeSet, LedgerChange, build_change_set

# Changes that are read at a time: the images of a large job would fill the memory.
_PAGE = 10_000

# Vectors are most of the text of the images, and no part of the change set.
_LIST_CHANGES = """
    SELECT seq, group_id, operation, entity_type, entity_id, previous_state - 'embedding' AS previous_state,
        new_state - 'embedding' AS new_state, reason
    FROM consolidation.consolidation_changes WHERE job_id = :job AND seq > :after ORDER BY seq LIMIT :page
"""


def load_change_set(connection: Connection, job_id: UUID) -> ChangeSet:
    """Return what a job decided; empty if it changed nothing, or if its part of the ledger was removed."""
    return build_change_set(_iter_changes(connection, job_id))


def _iter_changes(connection: Connection, job_id: UUID) -> Iterator[LedgerChange]:
    after = 0
    while True:
        parameters = {"job": job_id, "after": after, "page": _PAGE}
        rows = connection.execute(text(_LIST_CHANGES), parameters).tuples().all()
        yield from (LedgerChange(*row[1:]) for row in rows)
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


_LIST_CHANGES_OF_GROUP = """
    SELECT group_id, operation, entity_type, entity_id, previous_state - 'embedding' AS previous_state,
        new_state - 'embedding' AS new_state, reason
    FROM consolidation.consolidation_changes WHERE group_id = :group ORDER BY seq
"""


def load_decision(connection: Connection, group_id: UUID) -> list[LedgerChange]:
    """Return the changes of one decision, in their order, without vectors."""
    rows = connection.execute(text(_LIST_CHANGES_OF_GROUP), {"group": group_id}).tuples()
    return [LedgerChange(*row) for row in rows]
