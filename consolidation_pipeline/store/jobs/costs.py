"""What a project spent on models: by day, model, purpose and job, and in all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

_DAY = "(created_at AT TIME ZONE 'UTC')::date"
# Postgres numbers the grouping sets by the columns that they leave out, a bit each.
_BY = f"""
    CASE GROUPING({_DAY}, model, purpose, job_id)
        WHEN 15 THEN 'all' WHEN 7 THEN 'day' WHEN 11 THEN 'model' WHEN 13 THEN 'purpose' ELSE 'job' END
"""


def sum_costs(connection: Connection, project_id: UUID, *, since: date | None = None) -> Sequence[Row[Any]]:
    """A row for all calls of a project, for each day (UTC), model, purpose and job; ``since``: of these days only.

    Columns: ``by`` (all, day, model, purpose, job), the one of ``day``, ``model``, ``purpose``, ``job_id`` that it is
    for, with ``job_status`` and ``newest`` (time of the newest call), ``calls`` that were made, ``failed`` of them,
    replies ``cached``, ``tokens``, ``cost_usd``, and of it ``reserved_usd`` for the ``reserved`` calls that nobody has
    settled. Days, models and purposes by name, the newest job first.
    """
    query = f"""
        WITH summed AS (
            SELECT {_BY} AS by, {_DAY} AS day, model, purpose, job_id, max(created_at) AS newest,
                count(*) FILTER (WHERE status <> 'cached') AS calls,
                count(*) FILTER (WHERE status = 'failed') AS failed,
                count(*) FILTER (WHERE status = 'cached') AS cached,
                count(*) FILTER (WHERE status = 'reserved') AS reserved,
                coalesce(sum(prompt_tokens::bigint + completion_tokens), 0)::bigint AS tokens,
                coalesce(sum(coalesce(cost_usd, reserved_usd)), 0) AS cost_usd,
                coalesce(sum(reserved_usd) FILTER (WHERE status = 'reserved'), 0) AS reserved_usd
            FROM consolidation.llm_calls
            WHERE project_id = :project
                AND (CAST(:since AS date) IS NULL OR created_at >= CAST(:since AS timestamp) AT TIME ZONE 'UTC')
            GROUP BY GROUPING SETS ((), ({_DAY}), (model), (purpose), (job_id)))
        SELECT s.*, j.status AS job_status FROM summed s LEFT JOIN consolidation.consolidation_jobs j ON j.id = s.job_id
        ORDER BY s.day, s.model, s.purpose, s.newest DESC, s.job_id
    """
    return connection.execute(text(query), {"project": project_id, "since": since}).all()
