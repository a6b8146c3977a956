"""The report of a run: what a project holds now, what the run changed, what waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store.jobs import get_job
from consolidation_pipeline.store.statistics import ProjectCounts, count_project


@dataclass(frozen=True)
class Report:
    """Numbers of the project after the run, and the same as Markdown."""

    counts: ProjectCounts
    metrics: dict[str, Any]
    markdown: str


def write_report(run: ProjectRun) -> Report:
    """Count the project and put the run's own numbers beside it."""
    with run.engine.connect() as connection:
        counts = count_project(connection, run.project.id)
        job = get_job(connection, run.job_id)
    absorbed = 0 if job is None else int(job.memories_merged)
    metrics = describe_counts(counts) | {"memories_merged": absorbed}
    return Report(counts, metrics, _markdown(run.project.slug, counts, absorbed, run.options.schedule))


def describe_counts(counts: ProjectCounts) -> dict[str, Any]:
    """The numbers of a project under their stable names."""
    return {
        "memories": counts.memories,
        "active": counts.active,
        "consolidated": counts.consolidated,
        "archived": counts.archived,
        "merged": counts.merged,
        "units": counts.units,
        "reduction": None if counts.reduction is None else round(counts.reduction, 6),
        "by_type": dict(counts.by_type),
        "by_level": dict(counts.by_level),
        "needs_review": counts.needs_review,
        "suggest_groups": counts.suggest_groups,
        "pattern_groups": counts.pattern_groups,
        "cost_usd": counts.cost_usd,
        "tokens": counts.tokens,
    }


def _markdown(slug: str, counts: ProjectCounts, absorbed: int, schedule: str) -> str:
    reduction = "none yet" if counts.reduction is None else f"{counts.reduction:.1%}"
    types = "\n".join(f"| {name} | {number} |" for name, number in counts.by_type.items()) or "| none | 0 |"
    return f"""## {slug}

| | |
|---|---|
| raw memories | {counts.memories} |
| active | {counts.active} |
| merged memories, standing for {counts.consolidated} | {counts.merged} |
| archived | {counts.archived} |
| reduction | {reduction} |
| absorbed by this run | {absorbed} |
| groups a person should look at | {counts.suggest_groups} |
| groups on one topic | {counts.pattern_groups} |
| spent on models | ${counts.cost_usd:.4f} ({counts.tokens} tokens) |
| next run | `{schedule}` UTC, or when enough new memories have come |

| active memories of type | |
|---|---|
{types}
"""
