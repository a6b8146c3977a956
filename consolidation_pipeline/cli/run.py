"""``consolidation run`` and ``cancel``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from consolidation_pipeline.cli.cli_context import get_actor, open_store
from consolidation_pipeline.cli.error_report import FAILED, INTERRUPTED, describe_error, error_message, error_name
from consolidation_pipeline.cli.output import (
    JsonFlag,
    fact_table,
    format_percent,
    format_value,
    make_console,
    poll_progress,
    print_json,
    print_note,
)
from consolidation_pipeline.errors import BudgetExhaustedError, ConsolidationError, UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.service.plan.plan_document import Plan
    from consolidation_pipeline.store.database.engine import Engine


def run(
    projects: Annotated[list[str] | None, typer.Argument(metavar="PROJECT...", help="One or more projects.")] = None,
    job: Annotated[
        str, typer.Option(help="What to run: consolidate, summarize, decay, associate, forget or reembed.")
    ] = "consolidate",
    phases: Annotated[str | None, typer.Option(help="Only these phases of the job, separated by commas.")] = None,
    plan: Annotated[Path | None, typer.Option(help="Do what this plan says and nothing else, or refuse.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every enabled project.")] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="The jobs that were asked for and wait for a run.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Consolidate projects here and now; no daemon is needed.

    A project that fails does not stop the others. Nothing is written where nothing changed since the last run.
    """
    engine, _ = open_store()
    if pending:
        if projects or everything or plan or phases or job != "consolidate":
            raise UsageError("--pending goes with nothing else: what is pending says itself what it is")
        work, alone, none = _pending(engine), False, "no job is pending"
    else:
        chosen = _choose(engine, projects or [], everything=everything)
        what = {"job": job, "phases": _split(phases), "plan": _load(plan, chosen, job, phases)}
        work, alone = [(slug, what) for slug in chosen], len(chosen) == 1 and not everything
        none = "there is no enabled project to run"
    runs, codes = _run_all(engine, work, as_json=as_json, alone=alone)
    if as_json:
        print_json(runs[0] if alone else {"runs": runs})
    elif not runs:
        print_note(none)
    raise typer.Exit(_exit_code(codes))


def cancel(
    job: Annotated[UUID, typer.Argument(metavar="JOB", help="The job's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Cancel a job that is pending or running.

    A running one writes nothing more. What it wrote before stands, and can be rolled back.
    """
    from consolidation_pipeline.service.jobs.job_requests import cancel_job

    engine, _ = open_store()
    cancelled = cancel_job(engine, job, cancelled_by=get_actor())
    if as_json:
        print_json(vars(cancelled))
        return
    done = f"; done before: {', '.join(cancelled.phases_completed)}" if cancelled.phases_completed else ""
    print(f"job {job} of {cancelled.project}, which was {cancelled.previous_status}, is cancelled{done}")


def _pending(engine: Engine) -> list[tuple[str, dict[str, Any]]]:
    """The project of each pending job, and what it asks for."""
    from consolidation_pipeline.service.jobs.job_requests import list_pending_jobs

    return [
        (job.project, {"job": job.job, "phases": job.phases, "requested": job}) for job in list_pending_jobs(engine)
    ]


def _run_all(
    engine: Engine, work: Sequence[tuple[str, Mapping[str, Any]]], *, as_json: bool, alone: bool
) -> tuple[list[dict[str, Any]], list[int]]:
    """Outcomes and exit codes of the runs, in turn; a pending job that was begun or cancelled meanwhile is left out."""
    from consolidation_pipeline.service.jobs.job_requests import is_pending

    runs, codes = [], []
    for slug, what in work:
        requested = what.get("requested")
        if requested is not None and not is_pending(engine, requested.job_id):
            continue
        described, code = _run_one(engine, slug, what, as_json=as_json, alone=alone)
        runs.append(described)
        codes.append(code)
        if code == INTERRUPTED:
            break
    return runs, codes


def _split(phases: str | None) -> list[str] | None:
    return None if phases is None else [name.strip() for name in phases.split(",") if name.strip()]


def _load(path: Path | None, chosen: list[str], job: str, phases: str | None) -> Plan | None:
    """The plan of ``--plan``. Raises UsageError: it cannot be read, or what else was asked for does not go with it."""
    if path is None:
        return None
    if len(chosen) != 1 or job != "consolidate" or phases is not None:
        raise UsageError("--plan goes with one project, and with neither --job nor --phases: a plan is a whole run")
    from consolidation_pipeline.service.plan.plan_document import load_plan

    return load_plan(path)


def _choose(engine: Engine, named: list[str], *, everything: bool) -> list[str]:
    """The projects to run, each once. Raises UsageError, NotFoundError before anything is run."""
    from consolidation_pipeline.service.admin.projects import list_projects
    from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project

    if bool(named) == everything:
        raise UsageError("name the projects to run, or say --all, not both")
    if everything:
        return [backlog.slug for backlog in list_projects(engine) if backlog.consolidation_enabled]
    return [get_runnable_project(engine, slug).slug for slug in dict.fromkeys(named)]


def _run_one(
    engine: Engine, slug: str, what: Mapping[str, Any], *, as_json: bool, alone: bool
) -> tuple[dict[str, Any], int]:
    """Run a project and show how it went: the outcome and an exit code. ``alone``: errors are the caller's to show."""
    try:
        described = run_and_describe(engine, slug, what, as_json=as_json)
    except ConsolidationError as error:
        if alone:
            raise
        print_note(f"{slug}: {describe_error(error)}")
        failure = {"project": slug, "status": "failed", "error": error_message(error), "error_kind": error_name(error)}
        return failure, error.exit_code
    if described["error"]:
        print_note(f"{slug}: error: {' '.join(described['error'].split())}")
    for stop in _out_of_budget(described):
        how = _how_to_raise(slug, stop["reason"])
        print_note(f"{slug}: {stop['purpose']} ended before its time: {stop['reason']}; {how}")
    if not as_json:
        make_console().print(make_run_table(described))
    return described, _code_of(described)


def _out_of_budget(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [stop for stop in run["stopped"] if stop["by"] == "budget"]


def _how_to_raise(slug: str, reason: str) -> str:
    """How to let the next run spend more; the reason names the budget."""
    budget = re.search(r"budget_\w+", reason)
    return f"raise it with `consolidation projects configure {slug} {budget[0] if budget else 'budget_usd_per_run'}=..`"


def _code_of(run: Mapping[str, Any]) -> int:
    """How a run ended: 4 where nothing but a used-up budget kept it from doing all."""
    budget = {stop["purpose"] for stop in _out_of_budget(run)}
    if run["status"] == "completed":
        return BudgetExhaustedError.exit_code if budget else 0
    if run["status"] == "failed" and run["phases_failed"] and budget.issuperset(run["phases_failed"]):
        return BudgetExhaustedError.exit_code
    if run["status"] == "cancelled":
        # A job that somebody cancelled does not end what comes after it, as Ctrl-C does.
        return FAILED if "cancelled_by" in run["metrics"] else INTERRUPTED
    return 0 if run["status"] == "unchanged" else FAILED


def run_and_describe(engine: Engine, slug: str, what: Mapping[str, Any], *, as_json: bool) -> dict[str, Any]:
    """Run a project with progress on standard error; returns the outcome with the numbers behind it.

    ``what``: the ``job``, ``phases``, ``plan`` and ``requested`` of ``launch.run_project``, where they are not the
    default.
    """
    from consolidation_pipeline.service.jobs.job_status import describe_outcome, describe_progress

    with poll_progress(f"consolidating {slug}", lambda: describe_progress(engine, slug), as_json=as_json):
        from consolidation_pipeline.launch import run_project

        outcome = run_project(slug, **what, triggered_by=get_actor())
    numbers = describe_outcome(engine, slug, outcome.job_id, changed=outcome.status != "unchanged")
    return {
        "project": slug,
        "status": outcome.status,
        "job_id": outcome.job_id,
        "run_id": outcome.run_id,
        "error": outcome.error,
        "seconds": round(outcome.seconds, 3),
        **numbers,
    }


def make_run_table(run: dict[str, Any]) -> Any:
    """What a run did, for people."""
    if run["status"] == "unchanged":
        since = f"{format_value(run['completed_at'])}, job {run['job_id']}; no run was needed"
        return fact_table(f"{run['project']}: unchanged", {"nothing changed since": since, "undo": run["undo"]})
    return fact_table(
        f"{run['project']}: {run['status']}",
        {
            "phases": run["phases_completed"],
            "failed phases": run["phases_failed"] or None,
            "memories absorbed": run["memories_merged"],
            "merged memories": f"{run['merged_created']} created, {run['merged_extended']} extended",
            "learned": _learned(run["metrics"]),
            "playbook": _promoted(run["metrics"].get("playbook_entries", {})),
            "suggestions": _suggestions(run),
            "summaries": _summaries(run),
            "archived": describe_archived(run),
            "stopped": "; ".join(f"{stop['purpose']}: {stop['reason']}" for stop in run["stopped"]) or None,
            "relations added": run["metrics"].get("associations", {}).get("relations_added"),
            "units": f"{run['units_before']} -> {run['units_after']}",
            "reduction": format_percent(run["reduction"]),
            "seconds": f"{run['seconds']:.1f}",
            "job": run["job_id"],
            "undo": run["undo"],
        },
    )


def _learned(metrics: Mapping[str, Any]) -> str | None:
    """How many patterns and principles a run made and changed; None where it did neither."""
    told = []
    for kind in ("patterns", "principles"):
        done = metrics.get(kind, {})
        counts = {what: done.get(f"{kind}_{what}", 0) for what in ("created", "updated", "superseded")}
        said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        told += [f"{kind} {said}"] if said else []
    return "; ".join(told) or None


def _promoted(done: Mapping[str, Any]) -> str | None:
    """What a run did to the playbook; None where it did nothing."""
    counts = {what: done.get(f"entries_{what}", 0) for what in ("promoted", "proposed", "reinforced", "updated")}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or None


def _suggestions(run: Mapping[str, Any]) -> str | None:
    """How many merges a run proposed and how many wait for a person; None where none does."""
    done = run["metrics"].get("consolidation_suggestions", {})
    made, waiting = done.get("suggestions_created", 0), done.get("suggestions_waiting", 0)
    return f"{made} created, {waiting} wait: consolidation suggestions list {run['project']}" if waiting else None


def _summaries(run: Mapping[str, Any]) -> str | None:
    """How many summaries a run made, and of how many memories; None where it made none."""
    done = run["metrics"].get("semantic_summaries", {})
    made = done.get("summaries_created")
    return f"{made}, of {done['memories_summarized']} memories" if made else None


def describe_archived(run: Mapping[str, Any]) -> str:
    """How many memories a run archived, and how many it would not without being asked."""
    done = run["metrics"].get("archived_memories", {})
    if done.get("held_back"):
        return f"none: {done['held_back']} are unused, too many to archive unasked; do it by {done['to_archive_them']}"
    return str(run["memories_archived"])


def _exit_code(codes: list[int]) -> int:
    """0 when all went well, the code that all failures share, else 1."""
    failures = {code for code in codes if code}
    if INTERRUPTED in failures:
        return INTERRUPTED
    return failures.pop() if len(failures) == 1 else FAILED if failures else 0


COMMANDS = (run, cancel)
