"""Costs of a project's calls to models: in all, and by day, model, purpose and job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.jobs.llm_calls import COST_SUMS

# GROUPING sets a bit for each column that a grouping set leaves out: 15 = all of them, 7 = all but the day.
_SUM_COSTS = compose(
    """
    WITH calls AS (
        SELECT *, (created_at AT TIME ZONE 'UTC')::date AS day FROM consolidation.llm_calls
        WHERE project_id = :project
            AND (CAST(:since AS date) IS NULL OR created_at >= CAST(:since AS timestamp) AT TIME ZONE 'UTC')),
    summed AS (
        SELECT CASE GROUPING(day, model, purpose, job_id)
                WHEN 15 THEN 'all' WHEN 7 THEN 'day' WHEN 11 THEN 'model' WHEN 13 THEN 'purpose' ELSE 'job' END AS by,
            day, model, purpose, job_id, max(created_at) AS newest, /* cost_sums */
        FROM calls GROUP BY GROUPING SETS ((), (day), (model), (purpose), (job_id)))
    SELECT s.*, j.status AS job_status FROM summed s LEFT JOIN consolidation.consolidation_jobs j ON j.id = s.job_id
    ORDER BY s.day, s.model, s.purpose, s.newest DESC, s.job_id
    """,
    cost_sums=COST_SUMS,
)


def sum_costs(connection: Connection, project_id: UUID, *, since: date | None) -> Sequence[Row[Any]]:
    """Sum the costs of a project's calls.

    Args:
        since: Only calls of this day (UTC) and later; None = all.

    Returns:
        One row for all calls, then one for each day (UTC), model, purpose and job. ``by``: all, day, model, purpose or
        job. ``day``, ``model``, ``purpose``, ``job_id``: what the row is for, the others None. ``job_status``,
        ``newest``: time of the newest call. ``calls``: calls made, ``failed`` of them. ``cached``: replies from the
        cache. ``tokens``. ``cost_usd``; of it ``reserved_usd`` for the ``reserved`` calls that are not settled.
        Days, models and purposes are in their own order, jobs newest first.
    """
    return connection.execute(text(_SUM_COSTS), {"project": project_id, "since": since}).all()
