"""Phases that end before their time, because the budget is used up or the model stopped answering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consolidation_pipeline.errors import BudgetExhaustedError
from consolidation_pipeline.store.jobs import append_event

if TYPE_CHECKING:
    from consolidation_pipeline.service.runs import ProjectRun


def note_stop(run: ProjectRun, purpose: str, error: Exception) -> str:
    """Note on the run what stopped before its time, and why, for its job and the next run; returns why, in words.

    Listeners are told where the budget is used up.
    """
    by = "budget" if isinstance(error, BudgetExhaustedError) else "model"
    run.stopped.append({"purpose": purpose, "by": by, "reason": str(error)})
    run.unfinished = True
    if by == "budget":
        payload = {"job_id": str(run.job_id), "purpose": purpose, "reason": str(error)}
        with run.engine.begin() as connection:
            append_event(connection, run.project.id, "budget.exhausted", payload)
    return str(error)
