"""Status of jobs and projects: progress, results, and what the next run waits for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.id_prefixes import may_be_id
from consolidation_pipeline.core.jobs.triggers import is_due, next_cron_time
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.jobs.retry_policy import describe_failing_job, list_failing_jobs
from consolidation_pipeline.service.jobs.short_ids import JOBS, find_row_id
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.stale_jobs import fail_dead_job
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_counts import ProjectCounts, count_project, list_backlogs
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.ledger import ledger_reader
from consolidation_pipeline.store.projects import Project, get_project

# Most change ids listed with a job; `history --job` has them all.
SHOWN_CHANGES = 1000

# Columns of a job that are shown under their own names.
_SHOWN = (
    *("phases_completed", "phases_failed", "memories_merged", "clusters_merged", "memories_archived"),
    *("memories_promoted", "summaries_created", "metrics", "error_message", "trigger_type", "triggered_by"),
    *("retry_count", "max_retries", "created_at", "started_at", "completed_at", "duration_seconds"),
)


def describe_job(engine: Engine, reference: str) -> dict[str, Any]:
    """Return the job that ``find_job`` finds, with the ids of its changes.

    A job whose process died is marked failed first. Errors are those of ``find_job``.
    """
    job_id, project = find_job(engine, reference)
    fail_dead_job(engine, project)
    with engine.connect() as connection:
        job = jobs.get_job(connection, job_id)
        ids, total = ledger_reader.list_job_changes(connection, job_id, limit=SHOWN_CHANGES)
    if job is None:
        raise NotFoundError(f"job {job_id} was deleted in the meantime")
    return {
        "job_id": job_id,
        "project_id": project.id,
        "project": project.slug,
        "status": job.status,
        "progress": job.progress,
        "run_id": job.dagster_run_id,
        **{name: job._mapping[name] for name in _SHOWN},
        "dead": _is_dead(job),
        "consolidation_changes": ids,
        "consolidation_changes_total": total,
    }


def find_job(engine: Engine, reference: str) -> tuple[UUID, Project]:
    """Return the job that runs, is next, or was the newest of the project with this slug, or else the job with this id.

    Args:
        engine: The store.
        reference: The slug, or the id or at least its first 8 hexadecimal digits.

    Raises:
        UsageError: Several ids of jobs begin with the reference.
        NotFoundError: There is no such project or job, or the project has no job yet.
    """
    with engine.connect() as connection:
        try:
            project = get_project(connection, reference)
        except NotFoundError:
            if not may_be_id(reference):
                raise
            job = jobs.require_job(connection, find_row_id(engine, JOBS, reference))
            return job.id, get_project(connection, job.slug)
        live = jobs.find_live_job(connection, project.id)
        found = [live] if live is not None else jobs.list_jobs(connection, project.id, limit=1)
    if not found:
        raise NotFoundError(f"project {reference} has no job yet: `consolidation run {reference}` makes one")
    return found[0].id, project


def list_jobs(engine: Engine, slug: str, *, limit: int, offset: int = 0) -> list[dict[str, Any]]:
    """Return the jobs of a project, newest first. A job whose process died is marked failed first."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
    fail_dead_job(engine, project)
    with engine.connect() as connection:
        rows = jobs.list_jobs(connection, project.id, limit=limit, offset=offset)
    names = ("id", "status", *_SHOWN)
    return [{name: row._mapping[name] for name in names} | {"dead": _is_dead(row)} for row in rows]


def _is_dead(job: Row[Any]) -> bool:
    """Return True if sensors do not retry the job after this failure."""
    return bool(job.status == "failed" and job.retry_count >= job.max_retries)


def describe_run(engine: Engine, run_id: str) -> dict[str, Any] | None:
    """Return the job that a run executes, as ``describe_job``; None before it opened the project."""
    with engine.connect() as connection:
        job = jobs.find_job_by_run(connection, run_id)
    return None if job is None else describe_job(engine, str(job.id))


def describe_progress(engine: Engine, run_id: str) -> str | None:
    """Return progress and last phase of a run, such as ``43%, clusters done``; None before it opened the project."""
    with engine.connect() as connection:
        job = jobs.find_job_by_run(connection, run_id)
    if job is None:
        return None
    done = f", {job.phases_completed[-1]} done" if job.phases_completed else ""
    return f"{job.progress:.0%}{done}"


def describe_outcome(engine: Engine, slug: str, job_id: UUID | None, *, changed: bool) -> dict[str, Any]:
    """Return the results of a run by name, and the command that undoes it.

    ``units_before`` counts the raw memories that are not archived, the base of ``reduction``.

    Args:
        job_id: Job of the run; None if there was none.
        changed: False if nothing was run, as nothing has changed since the job.
    """
    job = describe_job(engine, str(job_id)) if job_id is not None else {}
    with engine.connect() as connection:
        project = get_project(connection, slug)
        counts = count_project(connection, project.id)
    done = job if changed else {}
    metrics = done.get("metrics", {})
    merging = metrics.get("merged_memories", {})
    return {
        "completed_at": job.get("completed_at"),
        "phases_completed": done.get("phases_completed", []),
        "phases_failed": done.get("phases_failed", []),
        "memories_merged": done.get("memories_merged", 0),
        "groups_merged": done.get("clusters_merged", 0),
        "merges_refused_by_recall": metrics.get("clusters", {}).get("merges_refused_by_recall", 0),
        "merged_created": merging.get("merged_created", 0),
        "merged_extended": merging.get("merged_extended", 0),
        "memories_archived": done.get("memories_archived", 0),
        "archives_held_back": metrics.get("archived_memories", {}).get("held_back", 0),
        "units_before": counts.active + counts.consolidated,
        "units_after": counts.units,
        "reduction": counts.reduction,
        "refused_by_tests": metrics.get("refused_by_tests", []),
        "stopped": metrics.get("stopped", []),
        "failing": metrics.get("failing", []),
        "metrics": metrics,
        "undo": f"consolidation rollback {job_id}" if job.get("consolidation_changes_total") else None,
    }


def describe_refused(metrics: Mapping[str, Any]) -> str | None:
    """Return how many merges the recall gate refused, from the metrics of a job; None if none."""
    found = metrics.get("clusters", {})
    if not found.get("merges_refused_by_recall"):
        return None
    falls = ", ".join(f"place {fall}: {n}" for fall, n in found["recall_falls"].items())
    groups = counted(found["merges_refused_by_recall"], "group")
    return f"{groups} that search would find lower ({falls}); option recall_gate"


def describe_refused_by_test(refused: Mapping[str, Any]) -> str:
    """Return a sentence on a change that memory tests refused: an item of ``refused_by_tests`` of a job's metrics."""
    tests = "; ".join(f"test {name!r} would have failed: {reason}" for name, reason in refused["tests"].items())
    what = "group refused" if refused["phase"] in ("clusters", "merged_memories") else "change refused"
    count = len(refused["memories"])
    named = ", ".join(refused["memories"][:3]) + (f" and {count - 3} more" if count > 3 else "")
    return f"{tests}: {what} in {refused['phase']} ({named})"


def describe_model_failure(failing: Mapping[str, Any]) -> str:
    """Return a sentence on texts that the model failed to write: an item of ``failing`` of a job's metrics."""
    return f"{failing['purpose']}: {failing['groups']} made without the model, which failed: {failing['reason']}"


def describe_project(engine: Engine, slug: str, *, settings: Settings) -> dict[str, Any]:
    """Return the numbers of a project, its newest job, and what the next one waits for."""
    last = list_jobs(engine, slug, limit=1)
    with engine.connect() as connection:
        project = get_project(connection, slug)
        counts = count_project(connection, project.id)
        (backlog,) = list_backlogs(connection, project_id=project.id)
        failing = list_failing_jobs(connection, project.id)
    options = effective_options(project, settings)
    due = is_due(backlog.new, threshold=options.new_threshold)
    return {
        "project": slug,
        "enabled": project.consolidation_enabled,
        **describe_counts(counts),
        "last_run": last[0] if last else None,
        "next_run": {
            "at": next_cron_time(options.schedule, datetime.now(UTC)),
            "schedule": options.schedule,
            "new_memories": backlog.new,
            "due": bool(due),
            "reason": due.reason,
        },
        "failing": [vars(job) | {"told": describe_failing_job(job)} for job in failing],
        "model_failures": last[0]["metrics"].get("failing", []) if last else [],
    }


def describe_counts(counts: ProjectCounts) -> dict[str, Any]:
    """Return the numbers of a project under their stable names."""
    return {
        "memories": counts.memories,
        "active": counts.active,
        "consolidated": counts.consolidated,
        "archived": counts.archived,
        "merged": counts.merged,
        "units": counts.units,
        "reduction": counts.reduction,
        "by_type": dict(counts.by_type),
        "by_level": dict(counts.by_level),
        "by_kind": dict(counts.by_kind),
        "playbook_entries": counts.playbook.get("active", 0),
        "needs_review": counts.needs_review,
        "suggest_groups": counts.suggest_groups,
        "pattern_groups": counts.pattern_groups,
        "cost_usd": counts.cost_usd,
        "tokens": counts.tokens,
    }
