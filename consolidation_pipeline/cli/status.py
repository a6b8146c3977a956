"""Reading commands: ``status``, ``history``, ``metrics``, ``lineage``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.output import (
    JsonFlag,
    fact_table,
    format_percent,
    format_value,
    make_console,
    print_json,
    shorten,
)

if TYPE_CHECKING:
    from rich.table import Table

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")]

_TEXT_WIDTH = 100


def status(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or a project for its newest job.")],
    as_json: JsonFlag = False,
) -> None:
    """Show how a job is doing or how it went."""
    from consolidation_pipeline.service.jobs.job_status import describe_job

    engine, _ = open_store()
    found = describe_job(engine, job)
    if as_json:
        print_json(found)
        return
    rows = {
        "progress": format_percent(found["progress"]),
        "phases done": found["phases_completed"],
        "phases failed": found["phases_failed"] or None,
        "memories absorbed": found["memories_merged"],
        "groups merged": found["clusters_merged"],
        "changes": found["consolidation_changes_total"],
        "asked for": f"{format_value(found['created_at'])} by {found['triggered_by']} ({found['trigger_type']})",
        "began": found["started_at"],
        "ended": found["completed_at"],
        "error": found["error_message"],
        "failures": f"{found['retry_count']} in a row of at most {found['max_retries']}"
        if found["retry_count"]
        else None,
        "dead": "its schedule tries it again, or `consolidation run`" if found["dead"] else None,
    }
    make_console().print(fact_table(f"job {found['job_id']} of {found['project']}: {found['status']}", rows))


def history(
    project: Project,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Newest so many.")] = 50,
    operation: Annotated[str | None, typer.Option(help="Only this operation, such as merge or rollback.")] = None,
    job: Annotated[UUID | None, typer.Option(help="Only changes of this job.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what was changed, newest first.

    Groups of changes and jobs; with --json every change with the state before and after.
    """
    from consolidation_pipeline.service.jobs.job_status import list_jobs
    from consolidation_pipeline.service.undo.history import list_change_groups, list_ledger

    engine, _ = open_store()
    if as_json:
        print_json(list_ledger(engine, project, limit=limit, operation=operation, job_id=job))
        return
    out = make_console()
    out.print(_groups_table(list_change_groups(engine, project, limit=limit, operation=operation, job_id=job)))
    if job is None and operation is None:
        out.print(_jobs_table(list_jobs(engine, project, limit=limit)))


def _groups_table(groups: Sequence[Mapping[str, Any]]) -> Table:
    table = _listing("changes", "group", "when (UTC)", "operation", "rows")
    for group in groups:
        undone = "rolled back; " if group["rolled_back"] else ""
        why = f"{undone}{group['reason'] or 'no reason given'} (by {group['changed_by']})"
        what = (f"{group['changed_at']:%Y-%m-%d %H:%M}", group["operation"], str(group["changes"]))
        table.add_row(f"{group['group_id']}\n  {why}", *what, style="dim" if undone else None)
    return table


def _jobs_table(jobs: Sequence[Mapping[str, Any]]) -> Table:
    table = _listing("jobs", "job", "when (UTC)", "status", "absorbed")
    for job in jobs:
        error = shorten(job["error_message"] or "", _TEXT_WIDTH)
        told = f"by {job['triggered_by']}" + (f": {error}" if error else "")
        status = "dead" if job["dead"] else job["status"]
        what = (f"{job['created_at']:%Y-%m-%d %H:%M}", status, str(job["memories_merged"]))
        table.add_row(f"{job['id']}\n  {told}", *what)
    return table


def _listing(title: str, *names: str) -> Table:
    """A table of ids, each with a line of words under it, that is whole in 80 columns."""
    from rich.table import Table

    table = Table(title=f"{title}, newest first", title_justify="left", box=None)
    for name in names[:-1]:
        table.add_column(name, no_wrap=name != names[0])
    table.add_column(names[-1], justify="right")
    return table


def metrics(project: Project, as_json: JsonFlag = False) -> None:
    """Show a project in numbers.

    Memories, reduction, cost, last and next run.
    """
    from consolidation_pipeline.service.jobs.job_status import describe_project

    engine, settings = open_store()
    found = describe_project(engine, project, settings=settings)
    if as_json:
        print_json(found)
        return
    last, following = found["last_run"], found["next_run"]
    rows = {
        "raw memories": found["memories"],
        "active": found["active"],
        "merged away": found["consolidated"],
        "archived": found["archived"],
        "merged memories": found["merged"],
        "units": found["units"],
        "reduction": format_percent(found["reduction"]) or "none yet",
        "active by type": found["by_type"],
        "groups to look at": found["suggest_groups"],
        "groups on one topic": found["pattern_groups"],
        "needs review": found["needs_review"],
        "spent on models": f"${found['cost_usd']:.4f} ({found['tokens']} tokens)",
        "last run": f"{last['status']}, {format_value(last['created_at'])}" if last else "never",
        "failing": [job["told"] for job in found["failing"]] or None,
        "next run": f"{format_value(following['at'])}; {following['reason']}" if found["enabled"] else "disabled",
    }
    make_console().print(fact_table(project, rows))


def lineage(
    memory: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a memory or playbook entry, or its first 8 or more digits.")
    ],
    depth: Annotated[int, typer.Option(min=1, max=20, help="Levels of sources.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Show what a memory was made from and became."""
    from rich.tree import Tree

    from consolidation_pipeline.service.undo.lineage import trace_memory

    engine, _ = open_store()
    found = trace_memory(engine, memory, depth=depth)
    if as_json:
        print_json(found)
        return
    noun = "entry" if found["kind"] == "playbook" else "memory"
    tree = Tree(f"{found['kind']} {noun} {found['id']} ({found['memory_type']}, {found['status']})")
    tree.add(f"says: {shorten(found['content'], _TEXT_WIDTH)}")
    for derived in found["derived"]:
        tree.add(f"went into {_edge(derived)}")
    _grow(tree, found["sources"])
    make_console().print(tree)


def _grow(tree: Any, sources: Sequence[Mapping[str, Any]]) -> None:
    for source in sources:
        _grow(tree.add(_edge(source)), source["sources"])


def _edge(row: Mapping[str, Any]) -> str:
    similarity = "" if row["similarity"] is None else f" (similarity {row['similarity']:.2f})"
    return f"{row['kind']} {row['id']}{similarity}: {shorten(row['content'] or 'deleted', _TEXT_WIDTH)}"


COMMANDS = (status, history, metrics, lineage)
