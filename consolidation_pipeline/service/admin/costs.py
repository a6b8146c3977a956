"""What a project spends on models, and what is left of its budget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.jobs.costs import sum_costs
from consolidation_pipeline.store.jobs.llm_calls import sum_spending
from consolidation_pipeline.store.projects import get_project

# Jobs listed by themselves.
SHOWN_JOBS = 10

_NUMBERS = ("calls", "failed", "cached", "reserved", "tokens", "cost_usd", "reserved_usd")
_NAMES = {"day": "day", "model": "model", "purpose": "purpose", "job": "job_id"}
_NO_JOB = UUID(int=0)


def describe_costs(
    engine: Engine, slug: str, *, settings: Settings, days: int | None = None, now: datetime | None = None
) -> dict[str, Any]:
    """What the project spent in the last ``days`` (UTC, today included; None = ever), by day, model, purpose and job.

    Each with its calls, ``failed`` ones, replies from the cache, tokens and US dollars; ``reserved`` are calls that
    nobody has settled, which count as spent. ``today``: what was spent since midnight UTC and what is left of it.

    Raises:
        NotFoundError: no such project.
    """
    today = (now or datetime.now(UTC)).date()
    with engine.connect() as connection:
        project = get_project(connection, slug)
        since = None if days is None else today - timedelta(days=days - 1)
        rows = sum_costs(connection, project.id, since=since)
        spent = sum_spending(connection, project.id, _NO_JOB).usd_in_day
    budget = Decimal(str(effective_options(project, settings).budget_usd_per_day))
    return {
        "project": slug,
        "since": since,
        "total": next(_numbers(row) for row in rows if row.by == "all"),
        **{f"by_{by}": [_described(row) for row in rows if row.by == by] for by in ("day", "model", "purpose")},
        "jobs": [_described(row) for row in rows if row.by == "job"][:SHOWN_JOBS],
        "today": {"spent_usd": spent, "budget_usd": budget, "left_usd": max(budget - spent, Decimal(0))},
    }


def _described(row: Row[Any]) -> dict[str, Any]:
    own = {"status": row.job_status, "newest": row.newest} if row.by == "job" else {}
    return {_NAMES[row.by]: getattr(row, _NAMES[row.by]), **own, **_numbers(row)}


def _numbers(row: Row[Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _NUMBERS}
