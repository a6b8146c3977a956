"""``consolidation run`` and ``cancel``: runs of projects and cancellation of jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

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
from consolidation_pipeline.core.jobs.run_words import RUN_WORDS
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import (
    BudgetExhaustedError,
    ConsolidationError,
    JobEndedError,
    LLMError,
    ProjectBusyError,
    UsageError,
)

if TYPE_CHECKING:
    from consolidation_pipeline.service.plan.plan_document import Plan
    from consolidation_pipeline.store.database.engine import Engine

# Changes refused by memory tests that are listed.
_SHOWN_REFUSED = 5


def run(
    projects: Annotated[list[str] | None, typer.Argument(metavar="PROJECT...", help="One or more projects.")] = None,
    job: Annotated[
        str, typer.Option(help="Job to run: consolidate, summarize, decay, associate, forget or reembed.")
    ] = "consolidate",
    phases: Annotated[str | None, typer.Option(help="Only these phases of the job, separated by commas.")] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Apply a file of `plan --out` and nothing else; refused if the project changed.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run all enabled projects.")] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="Run the jobs that were requested and are pending.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Consolidate projects now, in this process. No daemon is needed.

    A failed project does not stop the others. Nothing is written if nothing changed since the last run.
    """
    engine, _ = open_store()
    work: list[tuple[str, Mapping[str, Any]]]
    if pending:
        if projects or everything or plan or phases or job != "consolidate":
            raise UsageError("--pending takes no other options or projects: a pending job has its own")
        from consolidation_pipeline.service.jobs.job_requests import list_pending_jobs

        jobs = list_pending_jobs(engine)
        work = [(one.project, {"job": one.job, "phases": one.phases, "requested": one}) for one in jobs]
        is_single, nothing = False, "no job is pending"
    else:
        chosen = _choose_projects(engine, projects or [], everything=everything)
        names = None if phases is None else [name.strip() for name in phases.split(",") if name.strip()]
        arguments = {"job": job, "phases": names, "plan": _load_plan(plan, chosen, job, phases)}
        work = [(slug, arguments) for slug in chosen]
        is_single, nothing = len(chosen) == 1 and not everything, "there is no enabled project to run"
    runs, codes = _run_all(engine, work, as_json=as_json, is_single=is_single)
    if as_json:
        print_json(runs[0] if is_single else {"runs": runs})
    elif not work:
        print_note(nothing)
    raise typer.Exit(_combine_exit_codes(codes))


def cancel(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="Id of a job or its first 8 digits, or a project for the job that runs or is next."
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Cancel a pending or running job.

    A running job writes nothing more. Its earlier changes stay and can be rolled back.
    """
    from consolidation_pipeline.service.jobs.job_requests import cancel_job
    from consolidation_pipeline.service.jobs.job_status import find_job

    engine, _ = open_store()
    job_id, _ = find_job(engine, job)
    cancelled = cancel_job(engine, job_id, cancelled_by=get_actor())
    if as_json:
        print_json(vars(cancelled))
        return
    done = f"; completed phases: {', '.join(cancelled.phases_completed)}" if cancelled.phases_completed else ""
    print(f"cancelled job {job_id} of {cancelled.project}, which was {cancelled.previous_status}{done}")


def _choose_projects(engine: Engine, named: list[str], *, everything: bool) -> list[str]:
    """Return the projects to run, each once. Raise UsageError or NotFoundError before anything is run."""
    from consolidation_pipeline.service.admin.projects import list_projects
    from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project

    if bool(named) == everything:
        raise UsageError("give the projects to run or --all, and not both")
    if everything:
        return [backlog.slug for backlog in list_projects(engine) if backlog.consolidation_enabled]
    return [get_runnable_project(engine, slug).slug for slug in dict.fromkeys(named)]


def _load_plan(path: Path | None, chosen: list[str], job: str, phases: str | None) -> Plan | None:
    """Return the plan of ``--plan``. Raise UsageError if it cannot be read or other options conflict with it."""
    if path is None:
        return None
    if len(chosen) != 1 or job != "consolidate" or phases is not None:
        raise UsageError("--plan needs exactly one project and neither --job nor --phases: a plan is a whole run")
    from consolidation_pipeline.service.plan.plan_document import Plan
    from consolidation_pipeline.service.runs.plan_file import load_plan

    return load_plan(Plan, path, made_by="consolidation plan --out", told=("project_id", "totals"))


def _run_all(
    engine: Engine, work: Sequence[tuple[str, Mapping[str, Any]]], *, as_json: bool, is_single: bool
) -> tuple[list[dict[str, Any]], list[int]]:
    """Run projects in turn; return outcomes and exit codes.

    Args:
        work: for each run its project and the arguments of ``run_and_describe``.
        is_single: raise the error of a run.
    """
    runs, codes = [], []
    for slug, arguments in work:
        described, code = _run_one(engine, slug, arguments, as_json=as_json, is_single=is_single)
        runs.append(described)
        codes.append(code)
        if code == INTERRUPTED:
            break
    return runs, codes


def _run_one(
    engine: Engine, slug: str, arguments: Mapping[str, Any], *, as_json: bool, is_single: bool
) -> tuple[dict[str, Any], int]:
    """Run a project, print the outcome and return it with an exit code. With ``is_single``, raise errors."""
    from consolidation_pipeline.service.jobs.job_status import describe_model_failure

    try:
        described = run_and_describe(engine, slug, arguments, as_json=as_json)
    except ConsolidationError as error:
        if is_single:
            raise
        # Another run does a pending job, or the next run of pending jobs does it.
        is_left = "requested" in arguments and isinstance(error, JobEndedError | ProjectBusyError)
        print_note(f"{slug}: {error_message(error) if is_left else describe_error(error)}")
        failure = {"project": slug, "error": error_message(error), "error_kind": error_name(error)}
        return failure | {"status": "skipped" if is_left else "failed"}, 0 if is_left else error.exit_code
    if described["error"]:
        print_note(f"{slug}: error: {' '.join(described['error'].split())}")
    for stop in _find_budget_stops(described):
        budget = re.search(r"budget_\w+", stop["reason"])
        hint = f"consolidation projects configure {slug} {budget[0] if budget else 'budget_usd_per_run'}=.."
        print_note(f"{slug}: {stop['purpose']} ended early: {stop['reason']}; raise it with `{hint}`")
    print_refused_by_tests(described)
    for failing in described["failing"]:
        print_note(f"{slug}: {describe_model_failure(failing)}; the next run asks it again")
    told = {failing["purpose"] for failing in described["failing"]}
    for stop in described["stopped"]:
        if stop["by"] == "model" and stop["purpose"] not in told:
            print_note(f"{slug}: {stop['purpose']} ended early: {stop['reason']}; the next run asks again")
    if not as_json:
        make_console().print(_make_run_table(described))
    return described, _get_exit_code(described)


def print_refused_by_tests(run: Mapping[str, Any]) -> None:
    """Print a line for each change of a run that memory tests refused, on standard error."""
    from consolidation_pipeline.service.jobs.job_status import describe_refused_by_test

    for refused in run["refused_by_tests"][:_SHOWN_REFUSED]:
        print_note(f"{run['project']}: {describe_refused_by_test(refused)}")
    if len(run["refused_by_tests"]) > _SHOWN_REFUSED:
        print_note(f"{run['project']}: and {len(run['refused_by_tests']) - _SHOWN_REFUSED} more, with --json")


def run_and_describe(engine: Engine, slug: str, arguments: Mapping[str, Any], *, as_json: bool) -> dict[str, Any]:
    """Run a project with progress on standard error. Return the outcome and its numbers.

    ``arguments``: ``job``, ``phases``, ``plan`` and ``requested`` of ``launch.run_project``.
    """
    from consolidation_pipeline.service.jobs.job_status import describe_outcome, describe_progress

    run_id = str(uuid4())
    with poll_progress(f"consolidating {slug}", lambda: describe_progress(engine, run_id), as_json=as_json):
        from consolidation_pipeline.launch import run_project

        outcome = run_project(slug, **arguments, triggered_by=get_actor(), run_id=run_id)
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


def _find_budget_stops(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [stop for stop in run["stopped"] if stop["by"] == "budget"]


def _get_exit_code(run: Mapping[str, Any]) -> int:
    """Return the exit code of a run: 4 if a used-up budget stopped any phase and nothing else failed.

    5 if all was done, some of it without the model, as it failed.
    """
    has_failed = run["failing"] or any(stop["by"] == "model" for stop in run["stopped"])
    budget = {stop["purpose"] for stop in _find_budget_stops(run)}
    if run["status"] == "completed":
        return LLMError.exit_code if has_failed else BudgetExhaustedError.exit_code if budget else 0
    if run["status"] == "failed" and run["phases_failed"] and budget.issuperset(run["phases_failed"]):
        return BudgetExhaustedError.exit_code
    if run["status"] == "cancelled":
        # Unlike Ctrl-C, a cancelled job does not stop the runs after it.
        return FAILED if "cancelled_by" in run["metrics"] else INTERRUPTED
    return 0 if run["status"] == "unchanged" else FAILED


def _combine_exit_codes(codes: list[int]) -> int:
    """Return 130 if a run was interrupted, 0 without failures, the code that all failures share, else 1."""
    failures = {code for code in codes if code}
    if INTERRUPTED in failures:
        return INTERRUPTED
    return failures.pop() if len(failures) == 1 else FAILED if failures else 0


def _count_refused(run: Mapping[str, Any]) -> str | None:
    """Return how many changes memory tests refused; None without any."""
    count = len(run["refused_by_tests"])
    return f"{counted(count, 'change')} that would have made a memory test fail" if count else None


def _make_run_table(run: dict[str, Any]) -> Any:
    """Return a table of what a run did."""
    from consolidation_pipeline.service.jobs.job_status import describe_refused

    if run["status"] == "unchanged":
        since = f"{format_value(run['completed_at'])}, job {run['job_id']}; no run was needed"
        return fact_table(f"{run['project']}: unchanged", {"nothing changed since": since, "undo": run["undo"]})
    memories = counted(run["memories_merged"], "memory")
    return fact_table(
        f"{run['project']}: {run['status']}",
        {
            "phases": run["phases_completed"],
            "failed phases": run["phases_failed"] or None,
            RUN_WORDS["merge"]: f"{counted(run['groups_merged'], 'group')}, {memories}",
            "not merged": describe_refused(run["metrics"]),
            "refused by tests": _count_refused(run),
            "merged memories": f"{run['merged_created']} created, {run['merged_extended']} extended",
            "learned": _describe_learned(run["metrics"]),
            RUN_WORDS["playbook"]: _join_counts(
                run["metrics"].get("playbook_entries", {}),
                "entries",
                ("promoted", "proposed", "reinforced", "updated"),
            ),
            RUN_WORDS["review"]: _describe_suggestions(run),
            RUN_WORDS["supersedes"]: _describe_supersessions(run),
            RUN_WORDS["summary"]: _describe_summaries(run),
            RUN_WORDS["archive"]: describe_archived(run),
            "without the model": ", ".join(f"{one['groups']} ({one['purpose']})" for one in run["failing"]) or None,
            "stopped": "; ".join(f"{stop['purpose']}: {stop['reason']}" for stop in run["stopped"]) or None,
            RUN_WORDS["associate"]: run["metrics"].get("associations", {}).get("relations_added"),
            "units": f"{run['units_before']} -> {run['units_after']}",
            "reduction": format_percent(run["reduction"]),
            "seconds": f"{run['seconds']:.1f}",
            "job": run["job_id"],
            "undo": run["undo"],
        },
    )


def _describe_learned(metrics: Mapping[str, Any]) -> str | None:
    """Return how many patterns and principles a run changed; None if none."""
    actions = ("created", "updated", "superseded")
    changed = {kind: _join_counts(metrics.get(kind, {}), kind, actions) for kind in ("patterns", "principles")}
    return "; ".join(f"{kind} {counts}" for kind, counts in changed.items() if counts) or None


def _join_counts(metrics: Mapping[str, Any], prefix: str, actions: Sequence[str]) -> str | None:
    """Return the metrics ``prefix_action`` that are not 0, as ``3 created, 1 updated``; None if all are 0."""
    counts = {action: metrics.get(f"{prefix}_{action}") for action in actions}
    return ", ".join(f"{count} {action}" for action, count in counts.items() if count) or None


def _describe_suggestions(run: Mapping[str, Any]) -> str | None:
    """Return how many merges a run proposed and how many wait; None if none waits."""
    done = run["metrics"].get("consolidation_suggestions", {})
    ended = run["metrics"].get("archived_memories", {}).get("suggestions_superseded", 0)
    made, waiting = done.get("suggestions_created", 0), done.get("suggestions_waiting", 0) - ended
    beyond = f", {count} beyond review_limit" if (count := done.get("groups_beyond_limit", 0)) else ""
    if count := done.get("groups_left_by_plan", 0):
        beyond = f", {count} left to a run without a plan, which proposes them"
    listing = f"consolidation suggestions list {run['project']}"
    archived = f", {ended} ended as an original was archived" if ended else ""
    return f"{made} created{archived}, {waiting} waiting{beyond}: {listing}" if waiting or beyond else None


def _describe_supersessions(run: Mapping[str, Any]) -> str | None:
    """Return how many supersessions a run found first, and how many of these wait for a person; None if none."""
    done = run["metrics"].get("supersessions", {})
    added, proposed = done.get("supersessions_added", 0), done.get("supersessions_proposed", 0)
    listing = f": consolidation relations list {run['project']} --type supersedes --status candidate"
    waiting = f", {proposed} of them wait for a person{listing}" if proposed else ""
    return f"{added} found{waiting}" if added else None


def _describe_summaries(run: Mapping[str, Any]) -> str | None:
    """Return how many summaries a run made, of how many memories, and how many it wrote again; None if none."""
    done = run["metrics"].get("semantic_summaries", {})
    made, rewritten = done.get("summaries_created"), done.get("summaries_rewritten")
    told = [f"{made}, of {counted(done['memories_summarized'], 'memory')}"] if made else []
    return "; ".join([*told, *([f"{rewritten} written again"] if rewritten else [])]) or None


def describe_archived(run: Mapping[str, Any]) -> str:
    """Return how many memories a run archived, or how many it held back."""
    done = run["metrics"].get("archived_memories", {})
    if done.get("held_back"):
        command = done["to_archive_them"]
        return f"none: {done['held_back']} are unused, too many to archive without a plan; archive them with {command}"
    before = f"; {counted(count, 'memory')} of the plan before" if (count := done.get("archived_before")) else ""
    return f"{counted(run['memories_archived'], 'memory')}{before}"
