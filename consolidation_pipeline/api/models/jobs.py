"""Bodies of the job routes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, ProjectReference, Reply, with_examples

JobStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
TriggerType = Literal["scheduled", "manual", "threshold"]
JobName = Literal["consolidate", "decay", "associate", "forget", "summarize", "reembed"]


class TriggerRequest(Body):
    """Job to run."""

    model_config = with_examples(
        {"project": "notes", "trigger_type": "manual", "options": {"archive": False, "similarity_threshold": 0.9}}
    )

    project: ProjectReference
    trigger_type: TriggerType = Field("manual", description="Cause: a person, a schedule or a threshold.")
    job: JobName = Field("consolidate", description="Job to run.")
    phases: list[str] | None = Field(
        None, min_length=1, max_length=50, description="Run only these phases of the job.", examples=[["decay_scores"]]
    )
    options: dict[str, Any] | None = Field(
        None, description="Options for this run only, by name or alias; they override the project's."
    )
    scope: dict[str, Any] | None = Field(
        None,
        description="`unconsolidated_only`, `memory_types`, `date_range`. Checked, but a run always looks at all"
        " memories of its project; `message` says so.",
    )


class TriggerReply(Reply):
    """A pending or running job."""

    model_config = with_examples(
        {
            "job_id": "0a4d55a8-d778-4022-abe1-6cdcc50e17d1",
            "status": "pending",
            "message": "Consolidation job queued",
            "created": True,
            "jobs_ahead": 0,
            "project_id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project": "notes",
            "job": "consolidate",
            "phases": ["decay_scores"],
            "estimated_duration_seconds": 12,
            "estimated_completion": "2026-01-08T15:30:00Z",
        }
    )

    job_id: UUID
    status: JobStatus
    message: str
    created: bool = Field(description="False: the same job was pending or running before the request.")
    jobs_ahead: int = Field(ge=0, description="Jobs of the project that run before this one.")
    project_id: UUID
    project: str
    job: str
    phases: list[str]
    estimated_duration_seconds: int = Field(description="Duration of the newest such job; without one, the time limit.")
    estimated_completion: datetime


class JobReply(Reply):
    """State of a job."""

    model_config = with_examples(
        {
            "job_id": "0a4d55a8-d778-4022-abe1-6cdcc50e17d1",
            "project_id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project": "notes",
            "status": "completed",
            "progress": 1.0,
            "trigger_type": "manual",
            "triggered_by": "api:nightly",
            "created_at": "2026-01-08T15:00:00Z",
            "started_at": "2026-01-08T15:00:01Z",
            "completed_at": "2026-01-08T15:00:25Z",
            "duration_seconds": 24.0,
            "run_id": None,
            "phases_completed": ["embedding_matrix", "merged_memories"],
            "phases_failed": [],
            "memories_merged": 45,
            "clusters_merged": 19,
            "memories_archived": 12,
            "memories_promoted": 8,
            "summaries_created": 3,
            "metrics": {"cost_usd": 0.0},
            "consolidation_changes": ["9ef0c64c-a9ae-4b41-8a25-5fd5bf3ac9b0"],
            "consolidation_changes_total": 1,
            "error_message": None,
            "retry_count": 0,
            "max_retries": 3,
            "dead": False,
        }
    )

    job_id: UUID
    project_id: UUID
    project: str
    status: JobStatus
    progress: float = Field(ge=0, le=1)
    trigger_type: TriggerType
    triggered_by: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    duration_seconds: float | None
    run_id: str | None = Field(description="Id of the run in Dagster.")
    phases_completed: list[str]
    phases_failed: list[str]
    memories_merged: int = Field(description="Memories that were merged into others.")
    clusters_merged: int
    memories_archived: int
    memories_promoted: int
    summaries_created: int
    metrics: dict[str, Any] = Field(description="Counters of each phase, and the cost.")
    consolidation_changes: list[UUID] = Field(description="Ids of the job's changes, at most 1000, oldest first.")
    consolidation_changes_total: int
    error_message: str | None
    retry_count: int = Field(description="Consecutive failures of this kind of job, including this one.")
    max_retries: int = Field(description="Consecutive failures after which sensors stop retrying.")
    dead: bool = Field(description="True: `max_retries` is reached; only a schedule or a person tries again.")


class JobEntry(Reply):
    """A job in a list."""

    id: UUID
    status: JobStatus
    trigger_type: TriggerType
    triggered_by: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    duration_seconds: float | None
    phases_completed: list[str]
    phases_failed: list[str]
    memories_merged: int
    memories_archived: int
    memories_promoted: int
    summaries_created: int
    error_message: str | None
    retry_count: int
    dead: bool


class JobsReply(Reply):
    """Jobs of a project, newest first."""

    project_id: UUID
    project: str
    limit: int
    offset: int
    jobs: list[JobEntry]


class CancelReply(Reply):
    """A cancelled job. Changes of its finished phases remain and can be rolled back."""

    model_config = with_examples(
        {
            "job_id": "0a4d55a8-d778-4022-abe1-6cdcc50e17d1",
            "project_id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project": "notes",
            "status": "cancelled",
            "previous_status": "pending",
            "phases_completed": [],
        }
    )

    job_id: UUID
    project_id: UUID
    project: str
    status: JobStatus
    previous_status: JobStatus
    phases_completed: list[str]
