"""Bodies of the project routes: list, create, plan, options, metrics."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import AliasChoices, ConfigDict, Field

from consolidation_pipeline.api.models.base import (
    MAX_REFERENCE_CHARS,
    Body,
    ProjectReference,
    Reply,
    Text,
    with_examples,
)
from consolidation_pipeline.api.models.jobs import JobEntry
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.plan.plan_document import Plan


class ProjectItem(Reply):
    """A project."""

    project_id: UUID
    project: str = Field(validation_alias=AliasChoices("project", "slug"), description="Slug.")
    consolidation_enabled: bool = Field(description="False: runs of the project are refused.")
    active: int = Field(description="Active raw memories.")
    merged: int = Field(description="Merged memories.")
    new: int = Field(description="Raw memories that no run has seen.")
    last_run_at: datetime | None = Field(validation_alias=AliasChoices("last_run_at", "last_job_at"))


class ProjectsReply(Reply):
    """Projects by slug."""

    total: int = Field(description="Number of projects, regardless of limit and offset.")
    limit: int
    offset: int
    projects: list[ProjectItem]


class CreateProjectRequest(Body):
    """Project to create."""

    model_config = with_examples({"project": "shop", "options": {"archive_stale_days": 120}})

    project: Text = Field(
        min_length=1, max_length=MAX_REFERENCE_CHARS, description="Slug: small letters, digits, hyphens, underscores."
    )
    options: dict[str, Any] = Field({}, description="Options to set, by name or alias.")


class PlanRequest(Body):
    """Project to plan."""

    model_config = with_examples({"project": "notes"})

    project: ProjectReference


class PlanReply(Plan):
    """All changes that a run would make, and their numbers."""

    project_id: UUID
    totals: dict[str, int]


def _describe_options(schema: dict[str, Any]) -> None:
    """Add all options to the schema, none of them required. The service checks the values."""
    options = ConsolidationOptions.model_json_schema(by_alias=False)["properties"]
    schema["properties"] |= {
        name: {"anyOf": [{key: value for key, value in option.items() if key != "default"}, {"type": "null"}]}
        for name, option in options.items()
    }
    schema["additionalProperties"] = False
    schema["examples"] = [{"t_merge": 0.96, "archive_stale_days": 120, "archive": None}]


class ConfigureRequest(Body):
    """Options to set, by name or alias. Null resets an option to its default; others keep their value."""

    model_config = ConfigDict(
        extra="allow", populate_by_name=True, allow_inf_nan=False, json_schema_extra=_describe_options
    )

    consolidation_enabled: bool | None = Field(
        None,
        validation_alias=AliasChoices("consolidation_enabled", "enabled"),
        description="False: runs of the project are refused.",
    )


class ConfigurationReply(Reply):
    """Options of a project."""

    model_config = with_examples(
        {
            "project_id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project": "notes",
            "consolidation_enabled": True,
            "config": {"archive_stale_days": 120},
            "effective": ConsolidationOptions(archive_stale_days=120).model_dump(mode="json"),
        }
    )

    project_id: UUID
    project: str
    consolidation_enabled: bool
    config: dict[str, Any] = Field(description="Options that were set for this project.")
    effective: dict[str, Any] = Field(description="Options in force: defaults, environment and `config`.")


class NextRun(Reply):
    """Time of the next run and its reason."""

    at: datetime | None = Field(description="Next time of the project's schedule, if consolidation_nightly is on.")
    schedule: str
    new_memories: int
    due: bool
    reason: str


class FailingJob(Reply):
    """A kind of job whose newest attempts failed."""

    job: str
    job_id: UUID = Field(description="Id of the newest attempt.")
    failures: int = Field(description="Number of consecutive failures.")
    dead: bool = Field(description="True: sensors stop retrying; only a schedule or a person tries again.")
    failed_at: datetime
    next_try_at: datetime | None
    error: str | None


class ModelFailure(Reply):
    """Texts of the last run that the language model failed to write. They were made without it."""

    purpose: str = Field(description="What the texts are for.")
    groups: int = Field(description="Number of groups without a text of the model.")
    reason: str


class ProjectMetricsReply(Reply):
    """Metrics of a project."""

    project_id: UUID
    project: str
    enabled: bool
    total_memories: int = Field(description="Number of raw memories.")
    raw_count: int = Field(description="Active raw memories.")
    consolidated_count: int = Field(description="Raw memories that were merged.")
    archived_count: int = Field(description="Archived raw memories.")
    merged_count: int = Field(description="Merged memories.")
    units: int = Field(description="Active raw memories plus merged memories.")
    reduction_percentage: float = Field(
        description="Percentage by which merging reduced the units; 0 before the first merge."
    )
    last_run_time: datetime | None
    next_run_time: datetime | None = Field(description="Null: consolidation is disabled.")
    memory_type_distribution: dict[str, int] = Field(description="Active raw memories by type.")
    abstraction_distribution: dict[str, int] = Field(description="Derived memories by level, 1 to 3.")
    kind_distribution: dict[str, int]
    playbook_entries: int
    needs_review: int
    suggest_groups: int
    pattern_groups: int
    cost_usd: float
    tokens: int
    last_run: JobEntry | None
    next_run: NextRun
    failing: list[FailingJob] = Field(
        description="Jobs whose newest attempts failed; a success removes a job from the list."
    )
    model_failures: list[ModelFailure] = Field(description="What the language model failed to write in the last run.")
