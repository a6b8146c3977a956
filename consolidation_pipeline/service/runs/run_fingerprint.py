"""Fingerprint of the state that a run starts from: if it is unchanged, another run would do nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_counts import hash_project_rows
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.calibrations import describe_versions


def compute_fingerprint(connection: Connection, project: Project, options: ConsolidationOptions, now: datetime) -> str:
    """Return a hash of rows, options, calibrations, the program, and the day, as relevance decays daily."""
    rows, calibrations = hash_project_rows(connection, project.id), describe_versions(connection, project.id)
    parts = (rows, options.model_dump_json(), calibrations, describe_code()["digest"], f"{now:%Y-%m-%d}")
    return content_hash("\n".join(parts))


def find_complete_job(connection: Connection, project: Project, settings: Settings) -> Row[Any] | None:
    """Return the newest job that left no work, if nothing has changed since except the day; else None."""
    done = jobs.find_job_with_fingerprint(connection, project.id)
    if done is None:
        return None
    current = compute_fingerprint(connection, project, effective_options(project, settings), done.started_at)
    return done if done.metrics["state"] == current else None


def find_unchanged_job(engine: Engine, project: Project, settings: Settings) -> Row[Any] | None:
    """Return the newest job if it left no work and nothing has changed since, not even the day; else None."""
    with engine.connect() as connection:
        newest = jobs.list_jobs(connection, project.id, limit=1)
        if not newest or "state" not in newest[0].metrics:
            return None
        current = compute_fingerprint(connection, project, effective_options(project, settings), datetime.now(UTC))
    return newest[0] if newest[0].metrics["state"] == current else None
