"""``consolidation history`` and ``lineage``: changes of a project, and the sources of a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.output import JsonFlag, make_console, make_table, print_json, shorten

if TYPE_CHECKING:
    from rich.table import Table

    from consolidation_pipeline.service.undo.lineage import DerivedKnowledge, LineageSource

_TEXT_WIDTH = 100


def history(
    project: Project,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")] = 50,
    operation: Annotated[str | None, typer.Option(help="Only this operation, such as merge or rollback.")] = None,
    job: Annotated[UUID | None, typer.Option(help="Only changes of this job.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List groups of changes and jobs, newest first.

    With --json: every change with the state before and after.
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
    table = _make_id_table("changes", "group", "when (UTC)", "operation", "rows")
    for group in groups:
        undone = "rolled back; " if group["rolled_back"] else ""
        why = f"{undone}{group['reason'] or 'no reason given'} (by {group['changed_by']})"
        columns = (f"{group['changed_at']:%Y-%m-%d %H:%M}", group["operation"], str(group["changes"]))
        table.add_row(f"{group['group_id']}\n  {why}", *columns, style="dim" if undone else None)
    return table


def _jobs_table(jobs: Sequence[Mapping[str, Any]]) -> Table:
    table = _make_id_table("jobs", "job", "when (UTC)", "status", "absorbed")
    for job in jobs:
        error = shorten(job["error_message"] or "", _TEXT_WIDTH)
        details = f"by {job['triggered_by']}" + (f": {error}" if error else "")
        status = "dead" if job["dead"] else job["status"]
        columns = (f"{job['created_at']:%Y-%m-%d %H:%M}", status, str(job["memories_merged"]))
        table.add_row(f"{job['id']}\n  {details}", *columns)
    return table


def _make_id_table(title: str, *names: str) -> Table:
    """Return a table of ids, each with a line of text under it, that fits 80 columns."""
    table = make_table(title=f"{title}, newest first")
    for name in names[:-1]:
        table.add_column(name, no_wrap=name != names[0])
    table.add_column(names[-1], justify="right")
    return table


def lineage(
    memory: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a memory or playbook entry, or at least its first 8 digits.")
    ],
    depth: Annotated[int, typer.Option(min=1, max=20, help="Maximum levels of sources.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Show the sources of a memory and the memories made from it."""
    from rich.tree import Tree

    from consolidation_pipeline.service.undo.lineage import trace_memory

    engine, _ = open_store()
    found = trace_memory(engine, memory, depth=depth)
    if as_json:
        print_json(vars(found))
        return
    noun = "entry" if found.kind == "playbook" else "memory"
    tree = Tree(f"{found.kind} {noun} {found.id} ({found.memory_type}, {found.status})")
    tree.add(f"says: {shorten(found.content, _TEXT_WIDTH)}")
    for derived in found.derived:
        tree.add(f"went into {_format_edge(derived)}")
    _add_sources(tree, found.sources)
    make_console().print(tree)


def _add_sources(tree: Any, sources: Sequence[LineageSource]) -> None:
    for source in sources:
        _add_sources(tree.add(_format_edge(source)), source.sources)


def _format_edge(memory: LineageSource | DerivedKnowledge) -> str:
    similarity = "" if memory.similarity is None else f" (similarity {memory.similarity:.2f})"
    return f"{memory.kind} {memory.id}{similarity}: {shorten(memory.content or 'deleted', _TEXT_WIDTH)}"
