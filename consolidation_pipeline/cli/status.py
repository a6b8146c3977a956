"""``consolidation status`` and ``metrics``: the state of a job and the numbers of a project."""

from __future__ import annotations

from typing import Annotated

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.output import (
    JsonFlag,
    fact_table,
    format_percent,
    format_value,
    make_console,
    print_json,
)
from consolidation_pipeline.core.text.counted_nouns import counted


def status(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="Id of a job or its first 8 digits, or a project for the job that runs, is next, or was the last.",
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Show the progress or result of a job."""
    from consolidation_pipeline.service.jobs.job_status import describe_job, describe_model_failure, describe_refused

    engine, _ = open_store()
    found = describe_job(engine, job)
    if as_json:
        print_json(found)
        return
    rows = {
        "progress": format_percent(found["progress"]),
        "phases done": found["phases_completed"],
        "phases failed": found["phases_failed"] or None,
        "merged": f"{counted(found['clusters_merged'], 'group')}, {counted(found['memories_merged'], 'memory')}",
        "not merged": describe_refused(found["metrics"]),
        "archived": counted(found["memories_archived"], "memory"),
        "changes": found["consolidation_changes_total"],
        "requested": f"{format_value(found['created_at'])} by {found['triggered_by']} ({found['trigger_type']})",
        "began": found["started_at"],
        "ended": found["completed_at"],
        "error": found["error_message"],
        "failing model": [describe_model_failure(one) for one in found["metrics"].get("failing", [])] or None,
        "failures": f"{found['retry_count']} in a row of at most {found['max_retries']}"
        if found["retry_count"] and found["status"] == "failed"
        else None,
        "dead": "retried by its schedule, or by `consolidation run`" if found["dead"] else None,
    }
    make_console().print(fact_table(f"job {found['job_id']} of {found['project']}: {found['status']}", rows))


def metrics(project: Project, as_json: JsonFlag = False) -> None:
    """Show the numbers of a project.

    Memories, reduction, cost, last and next run.
    """
    from consolidation_pipeline.service.jobs.job_status import describe_model_failure, describe_project

    engine, settings = open_store()
    found = describe_project(engine, project, settings=settings)
    if as_json:
        print_json(found)
        return
    last, next_run = found["last_run"], found["next_run"]
    rows = {
        "raw memories": found["memories"],
        "active raw memories": found["active"],
        "merged away": found["consolidated"],
        "archived": found["archived"],
        "active merged memories": found["merged"],
        "active in all": found["units"],
        "reduction": format_percent(found["reduction"]) or "none yet",
        "active by type": found["by_type"],
        "groups to look at": found["suggest_groups"],
        "groups on one topic": found["pattern_groups"],
        "needs review": found["needs_review"],
        "spent on models": f"${found['cost_usd']:.4f} ({found['tokens']} tokens)",
        "last run": f"{last['status']}, {format_value(last['created_at'])}" if last else "never",
        "failing": [job["told"] for job in found["failing"]] or None,
        "failing model": [describe_model_failure(one) for one in found["model_failures"]] or None,
        "next run": f"{format_value(next_run['at'])}; {next_run['reason']}" if found["enabled"] else "disabled",
    }
    make_console().print(fact_table(project, rows))
