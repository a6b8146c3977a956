"""Changes of one job, in the order in which they were made, and the texts of the raw memories that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.core.jobs.change_set import LedgerChange
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.ledger.ledger_reader import IS_UNDONE

# One change with its images may take many kilobytes.
_PAGE = 500


@dataclass(frozen=True)
class JobChange:
    """A change of a job. The images are without vectors. ``undone``: it was rolled back since."""

    seq: int
    group_id: UUID
    operation: str
    table: str
    row_id: UUID
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    reason: str | None
    confidence: float | None
    undone: bool

    @property
    def as_written(self) -> LedgerChange:
        """The change as the change set of a job has it."""
        return LedgerChange(
            self.group_id, self.operation, self.table, self.row_id, self.before, self.after, self.reason
        )


# The changes of a group need not be neighbours in the ledger.
_LIST_JOB_CHANGES = compose(
    """
    SELECT c.seq, c.group_id, c.operation, c.entity_type, c.entity_id, c.previous_state - 'embedding',
        c.new_state - 'embedding', c.reason, c.confidence, /* is_undone */
    FROM (
        SELECT *, min(seq) OVER (PARTITION BY group_id) AS first FROM consolidation.consolidation_changes
        WHERE job_id = :job) c
    ORDER BY c.first, c.seq
    """,
    is_undone=IS_UNDONE,
)


def iter_job_groups(connection: Connection, job_id: UUID) -> Iterator[list[JobChange]]:
    """Yield the groups of changes of a job, the oldest first, each with its changes in order.

    They are read page by page: no other statement may run on ``connection`` meanwhile.
    """
    paged = {"yield_per": _PAGE}
    rows = connection.execute(text(_LIST_JOB_CHANGES), {"job": job_id}, execution_options=paged)
    changes = (JobChange(*row) for row in rows)
    for _, group in groupby(changes, key=lambda change: change.group_id):
        yield list(group)


_COUNT_JOB_ROWS = """
    SELECT entity_type, count(DISTINCT entity_id) FROM consolidation.consolidation_changes
    WHERE job_id = :job GROUP BY entity_type ORDER BY entity_type
"""


def count_job_rows(connection: Connection, job_id: UUID) -> dict[str, int]:
    """Return table -> number of its rows that a job changed; tables without any are left out."""
    return {row[0]: int(row[1]) for row in connection.execute(text(_COUNT_JOB_ROWS), {"job": job_id})}


_COUNT_JOB_EDGES = "SELECT count(*) FROM consolidation.memory_lineage WHERE job_id = :job"


def count_job_edges(connection: Connection, job_id: UUID) -> int:
    """Count the edges of lineage that a job wrote and that are still stored."""
    return int(connection.execute(text(_COUNT_JOB_EDGES), {"job": job_id}).scalar_one())


_LOAD_RAW_TEXTS = """
    SELECT id, execution_summary FROM consolidation.task_memories WHERE project_id = :project AND id = ANY(:ids)
"""


def load_raw_texts(connection: Connection, project_id: UUID, ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return id -> main text of raw memories; those that do not exist any more are left out."""
    parameters = {"project": project_id, "ids": list(ids)}
    return {row.id: row.execution_summary for row in connection.execute(text(_LOAD_RAW_TEXTS), parameters)}


# Memories that came later are no input. A text that was changed since changes the hash, on purpose.
_FINGERPRINT_INPUTS = """
    SELECT count(*) AS memories,
        encode(sha256(convert_to(coalesce(string_agg(id || ' ' || content_hash, E'\n' ORDER BY id), ''), 'UTF8')),
            'hex') AS hash
    FROM consolidation.task_memories
    WHERE project_id = :project AND created_at <= :now
"""


def fingerprint_inputs(connection: Connection, project_id: UUID, now: datetime) -> Row[Any]:
    """Return ``memories``, the number of raw memories stored up to ``now``, and ``hash`` of their ids and texts."""
    return connection.execute(text(_FINGERPRINT_INPUTS), {"project": project_id, "now": now}).one()
