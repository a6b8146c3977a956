"""``consolidation history`` and ``lineage``: changes of a project, and the sources of a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Limit, Project, open_store
from consolidation_pipeline.cli.output import JsonFlag, format_value, make_console, make_table, print_json, shorten
from consolidation_pipeline.core.text.counted_nouns import counted

if TYPE_CHECKING:
    from rich.table import Table

    from consolidation_pipeline.service.undo.lineage import DerivedKnowledge, LineageSource
    from consolidation_pipeline.store.database.engine import Engine

_TEXT_WIDTH = 100


def history(
    project: Project,
    limit: Limit = 50,
    changes: Annotated[
        bool, typer.Option("--changes", help="List the groups of changes instead, with their reasons.")
    ] = False,
    operation: Annotated[
        str | None, typer.Option(help="Only changes of this operation, such as merge or rollback.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only changes of this job: its id or first 8 digits.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List what happened, newest first: a line for each run, and for each change between runs.

    With --changes, --operation or --job: the groups of changes. `rollback` takes the id of either. With --json: the
    lines, and every change with the state before and after.
    """
    from consolidation_pipeline.service.jobs.short_ids import JOBS, find_row_id
    from consolidation_pipeline.service.undo.history import list_activity, list_change_groups, list_ledger

    engine, _ = open_store()
    job_id = None if job is None else find_row_id(engine, JOBS, job)
    filters: dict[str, Any] = {"operation": operation, "job_id": job_id}
    has_filter = operation is not None or job is not None
    if as_json:
        found = list_ledger(engine, project, limit=limit, **filters)
        print_json(found if has_filter else found | {"activity": list_activity(engine, project, limit=limit)})
    elif changes or has_filter:
        make_console().print(_groups_table(list_change_groups(engine, project, limit=limit, **filters)))
    elif lines := list_activity(engine, project, limit=limit):
        _print_activity(lines)
    else:
        print(f"{project} has no history yet")


def _print_activity(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print one line for each; a narrow terminal cuts its end."""
    out = make_console()
    layout = "{:36}  {:16}  {:13}  {}"
    out.print(layout.format("id", "created (UTC)", "status", "what"), no_wrap=True, overflow="ellipsis")
    for line in lines:
        is_undone, is_touched = line["undone"] == line["changes"] > 0, line["undone"] > 0
        status = "undone" if is_undone else "partly undone" if is_touched else line["status"]
        columns = (str(line["id"]), f"{line['created_at']:%Y-%m-%d %H:%M}", status, _describe_activity(line))
        style = "dim" if is_undone else None
        out.print(layout.format(*columns), style=style, no_wrap=True, overflow="ellipsis")


def _describe_activity(line: Mapping[str, Any]) -> str:
    changes = counted(line["changes"], "change")
    details = [f"{line['action']} by {line['changed_by']}, {changes}"]
    if line["is_run"] and line["groups"]:
        details.append(format_value(line["groups"]))
    if line["reason"]:
        details.append(shorten(line["reason"], _TEXT_WIDTH))
    return ": ".join(details)


def _groups_table(groups: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of groups, each with its reason on a second line, that fits 80 columns."""
    table = make_table(title="changes, newest first")
    for name in ("id", "created (UTC)", "operation"):
        table.add_column(name, no_wrap=name != "id")
    table.add_column("changes", justify="right")
    for group in groups:
        undone = "rolled back; " if group["rolled_back"] else ""
        why = f"{undone}{group['reason'] or 'no reason given'} (by {group['changed_by']})"
        columns = (f"{group['changed_at']:%Y-%m-%d %H:%M}", group["operation"], str(group["changes"]))
        table.add_row(f"{group['group_id']}\n  {why}", *columns, style="dim" if undone else None)
    return table


def lineage(
    memory: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a memory or playbook entry, or at least its first 8 digits.")
    ],
    depth: Annotated[int, typer.Option(min=1, max=20, help="Maximum levels of sources.")] = 5,
    openlineage: Annotated[
        bool,
        typer.Option(
            "--openlineage", help="Print the OpenLineage events of a job, each as a line of JSON; ID: the job."
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the sources of a memory and the memories made from it, or the OpenLineage events of a job."""
    from rich.tree import Tree

    from consolidation_pipeline.service.undo.lineage import trace_memory

    engine, _ = open_store()
    if openlineage:
        _print_events(engine, memory)
        return
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


def _print_events(engine: Engine, reference: str) -> None:
    from consolidation_pipeline.service.jobs.job_status import find_job
    from consolidation_pipeline.service.lineage.collector import list_event_lines

    job_id, _ = find_job(engine, reference)
    for line in list_event_lines(engine, job_id):
        print(line)


def _add_sources(tree: Any, sources: Sequence[LineageSource]) -> None:
    for source in sources:
        _add_sources(tree.add(_format_edge(source)), source.sources)


def _format_edge(memory: LineageSource | DerivedKnowledge) -> str:
    similarity = "" if memory.similarity is None else f" (similarity {memory.similarity:.2f})"
    return f"{memory.kind} {memory.id}{similarity}: {shorten(memory.content or 'deleted', _TEXT_WIDTH)}"
