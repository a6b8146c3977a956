"""Report of a run: numbers of the project, changes of the run, and what waits for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from consolidation_pipeline.core.jobs.triggers import next_cron_time
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.service.jobs.job_status import describe_counts
from consolidation_pipeline.service.jobs.retry_policy import describe_failing_job, list_failing_jobs
from consolidation_pipeline.service.lifecycle.archive import explain_how_to_archive
from consolidation_pipeline.service.memory_tests.gate import report_tests
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.judge_calibration import describe_judge
from consolidation_pipeline.store.admin.project_counts import ProjectCounts, count_project
from consolidation_pipeline.store.database.engine import Row
from consolidation_pipeline.store.jobs.jobs import get_job
from consolidation_pipeline.store.jobs.llm_calls import sum_job_spending
from consolidation_pipeline.store.ledger.change_sets import load_change_set
from consolidation_pipeline.store.search.index_upkeep import build_indexes
from consolidation_pipeline.store.search.retrievers import load_vector_length


@dataclass(frozen=True)
class RunReport:
    """Numbers of the project after the run, also as Markdown."""

    counts: ProjectCounts
    metrics: dict[str, Any]
    markdown: str


def write_report(run: ProjectRun) -> RunReport:
    """Return the numbers of the project and of the run. First build the indexes of a large project."""
    with run.reading() as connection:
        dimension = load_vector_length(connection, run.project.id, run.embedder.name)
    build_indexes(run.engine, run.project.id, run.embedder.name, dimension, scope=run.options.scope)
    with run.reading() as connection:
        counts = count_project(connection, run.project.id)
        job = get_job(connection, run.job_id)
        spent = sum_job_spending(connection, run.job_id)
        change_set = load_change_set(connection, run.job_id)
        failing = [
            describe_failing_job(job) for job in list_failing_jobs(connection, run.project.id) if job.job != run.job
        ]
    tests = report_tests(run)
    own = _describe_run(job) | {"llm/run_cost_usd": float(spent.usd), "llm/run_tokens": spent.tokens}
    own["change_set"] = change_set.digest
    next_run = next_cron_time(run.options.schedule, run.now)
    judge = describe_judge(run)
    markdown = _format_markdown(run.project.slug, counts, own | tests, next_run=next_run, failing=failing, judge=judge)
    metrics = describe_counts(counts) | own | {"jobs_failing": len(failing)} | tests
    return RunReport(counts, metrics, markdown)


def _describe_run(job: Row[Any] | None) -> dict[str, Any]:
    """Return the numbers of the run itself; zeros if its job was deleted."""
    if job is None:
        names = ("memories_merged", "groups_merged", "merges_refused_by_recall", "memories_archived", "held_back")
        return dict.fromkeys(names, 0)
    return {
        "memories_merged": job.memories_merged,
        "groups_merged": job.clusters_merged,
        "merges_refused_by_recall": job.metrics.get("clusters", {}).get("merges_refused_by_recall", 0),
        "memories_archived": job.memories_archived,
        "held_back": job.metrics.get("archived_memories", {}).get("held_back", 0),
    }


def _describe_tests(own: Mapping[str, Any]) -> str:
    if "memory_tests" not in own:
        return "none"
    refused = own["refused_by_tests"]
    return f"{own['memory_tests'] - own['memory_tests_failing']} of {own['memory_tests']} pass" + (
        f"; {counted(refused, 'change')} refused, as they would have made one fail" if refused else ""
    )


def _format_markdown(
    slug: str,
    counts: ProjectCounts,
    own: Mapping[str, Any],
    *,
    next_run: datetime | None,
    failing: Sequence[str],
    judge: str,
) -> str:
    scheduled = "not by schedule" if next_run is None else f"{next_run:%Y-%m-%d %H:%M} UTC"
    reduction = "none yet" if counts.reduction is None else f"{counts.reduction:.1%}"
    types = "\n".join(f"| {name} | {number} |" for name, number in counts.by_type.items()) or "| none | 0 |"
    held_back = f"{own['held_back']}: {explain_how_to_archive(slug)}" if own["held_back"] else "0"
    return f"""## {slug}

| | |
|---|---|
| raw memories | {counts.memories} |
| active raw memories | {counts.active} |
| active merged memories, of {counts.consolidated} raw ones | {counts.merged} |
| active in all | {counts.units} |
| archived | {counts.archived} |
| reduction | {reduction} |
| patterns | {counts.by_kind.get("pattern", 0)} |
| principles | {counts.by_kind.get("principle", 0)} |
| playbook entries | {counts.playbook.get("active", 0)} |
| summaries | {counts.by_kind.get("summary", 0)} |
| waiting for review | {counts.needs_review} |
| merged by this run | {own["groups_merged"]} groups, {own["memories_merged"]} memories |
| not merged, as search would find them lower | {own["merges_refused_by_recall"]} groups |
| memory tests | {_describe_tests(own)} |
| archived by this run | {own["memories_archived"]} |
| held back, too many to archive automatically | {held_back} |
| groups to review | {counts.suggest_groups} |
| groups on one topic | {counts.pattern_groups} |
| spent on models by this run | ${own["llm/run_cost_usd"]:.4f} ({own["llm/run_tokens"]} tokens) |
| spent on models by the project | ${counts.cost_usd:.4f} ({counts.tokens} tokens) |
| hash of its changes | `{own["change_set"]}` |
| other failing jobs | {", ".join(failing) or "none"} |
| pair judge | {judge} |
| next run | {scheduled}, or after enough new memories |

| active memories of type | |
|---|---|
{types}
"""
