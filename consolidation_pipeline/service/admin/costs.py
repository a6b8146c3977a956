"""Costs of a project's model calls, and what is left of its budget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.jobs.costs import sum_costs
from consolidation_pipeline.store.jobs.llm_calls import load_spent
from consolidation_pipeline.store.projects import get_project

# Number of jobs that are listed.
MAX_JOBS = 10

# Columns of every item, and the column that names it.
_NUMBERS = ("calls", "failed", "cached", "reserved", "tokens", "cost_usd", "reserved_usd")
_KEYS = {"day": "day", "model": "model", "purpose": "purpose", "job": "job_id"}
_NO_JOB = UUID(int=0)


def describe_costs(
    engine: Engine, slug: str, *, settings: Settings, days: int | None = None, now: datetime | None = None
) -> dict[str, Any]:
    """Return what a project spent, in total and by day, model, purpose and job.

    Each item has its calls, failed calls, replies from the cache, tokens and US dollars. ``reserved`` counts calls that
    are not settled; they count as spent. ``today`` has what was spent since midnight UTC and what the budget has left.
    ``days`` is the number of days (UTC) to count, today included; None = all.
    """
    today = (now or datetime.now(UTC)).date()
    with engine.connect() as connection:
        project = get_project(connection, slug)
        since = None if days is None else today - timedelta(days=days - 1)
        rows = sum_costs(connection, project.id, since=since)
        spent = load_spent(connection, project.id, _NO_JOB).usd_in_day
    budget = Decimal(str(effective_options(project, settings).budget_usd_per_day))
    return {
        "project": slug,
        "since": since,
        "total": next(_select_numbers(row) for row in rows if row.by == "all"),
        **{f"by_{by}": [_describe_row(row) for row in rows if row.by == by] for by in ("day", "model", "purpose")},
        "jobs": [_describe_row(row) for row in rows if row.by == "job"][:MAX_JOBS],
        "today": {"spent_usd": spent, "budget_usd": budget, "left_usd": max(budget - spent, Decimal(0))},
    }


def _describe_row(row: Row[Any]) -> dict[str, Any]:
    own = {"status": row.job_status, "newest": row.newest} if row.by == "job" else {}
    return {_KEYS[row.by]: getattr(row, _KEYS[row.by]), **own, **_select_numbers(row)}


def _select_numbers(row: Row[Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _NUMBERS}
