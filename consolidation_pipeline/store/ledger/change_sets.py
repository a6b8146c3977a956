"""Change sets of jobs, read from the ledger."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.jobs.change_set import ChangeSet, LedgerChange, build_change_set

# Vectors are most of the text of the images, and no part of the change set.
_LIST_CHANGES = """
    SELECT group_id, operation, entity_type, entity_id, previous_state - 'embedding' AS previous_state,
        new_state - 'embedding' AS new_state, reason
    FROM consolidation.consolidation_changes WHERE job_id = :job ORDER BY seq
"""


def load_change_set(connection: Connection, job_id: UUID) -> ChangeSet:
    """Return what a job decided; empty if it changed nothing, or if its part of the ledger was removed."""
    rows = connection.execute(text(_LIST_CHANGES), {"job": job_id}).tuples()
    return build_change_set(LedgerChange(*row) for row in rows)
