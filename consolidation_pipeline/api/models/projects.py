"""A project: its plan, its configuration, its numbers."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import AliasChoices, ConfigDict, Field

from consolidation_pipeline.api.models.base import Body, ProjectReference, Reply, with_examples
from consolidation_pipeline.api.models.jobs import JobEntry
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.plan.plan_document import Plan


class PlanRequest(Body):
    """Whose plan."""

    model_config = with_examples({"project_id": "notes"})

    project_id: ProjectReference = Field(validation_alias=AliasChoices("project_id", "project"))


class PlanReply(Plan):
    """All that a run would change, and how many of each."""

    project_id: UUID
    totals: dict[str, int]


def _describe_options(schema: dict[str, Any]) -> None:
    """The options, none of them required, for clients; the service checks them and names the range."""
    options = ConsolidationOptions.model_json_schema(by_alias=False)["properties"]
    schema["properties"] |= {
        name: {"anyOf": [{key: value for key, value in option.items() if key != "default"}, {"type": "null"}]}
        for name, option in options.items()
    }
    schema["additionalProperties"] = False
    schema["examples"] = [{"t_merge": 0.96, "archive_stale_days": 120, "archive": None}]


class ConfigureRequest(Body):
    """Options to set, by name or alias; null takes one back to its default. Others keep their value."""

    model_config = ConfigDict(
        extra="allow", populate_by_name=True, allow_inf_nan=False, json_schema_extra=_describe_options
    )

    consolidation_enabled: bool | None = Field(
        None,
        validation_alias=AliasChoices("consolidation_enabled", "enabled"),
        description="Whether runs may consolidate the project.",
    )


class ConfigurationReply(Reply):
    """The options in force for a project."""

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
    config: dict[str, Any] = Field(description="What was set for this project.")
    effective: dict[str, Any] = Field(description="What is in force: defaults, environment and `config`.")


class NextRun(Reply):
    """What the next run waits for."""

    at: datetime | None = Field(description="When the project's schedule comes, if nightly_consolidation is on.")
    schedule: str
    new_memories: int
    due: bool
    reason: str


class FailingJob(Reply):
    """A job whose newest attempts failed."""

    job: str
    job_id: UUID = Field(description="The newest of them.")
    failures: int = Field(description="In a row.")
    dead: bool = Field(description="Sensors leave it alone; its schedule tries it again, or a person.")
    failed_at: datetime
    next_try_at: datetime | None
    error: str | None


class ProjectMetricsReply(Reply):
    """A project in numbers."""

    project_id: UUID
    project: str
    enabled: bool
    total_memories: int = Field(description="Raw memories in all.")
    raw_count: int = Field(description="Of them those that are active.")
    consolidated_count: int = Field(description="Of them those that a merged memory stands for.")
    archived_count: int = Field(description="Of them those that are archived.")
    merged_count: int = Field(description="Merged memories.")
    units: int = Field(description="Active raw memories and merged memories.")
    reduction_percentage: float = Field(description="Share of the units that merging took away; 0 before the first.")
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
    failing: list[FailingJob] = Field(description="Jobs whose newest attempts failed; a success ends it.")
