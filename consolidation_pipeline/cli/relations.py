"""``consolidation relations``: list, confirm, reject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Limit, Project, Reason, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, format_value, make_console, make_table, print_json, shorten

app = typer.Typer(no_args_is_help=True, help="List, confirm and reject relations between memories.")

Relations = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids shown by `relations list`, or their first 8 digits.")
]

_TEXT_WIDTH = 85


@app.command(name="list")
def list_(
    project: Project,
    status: Annotated[str | None, typer.Option(help="Only this status: candidate, confirmed or rejected.")] = None,
    type: Annotated[str | None, typer.Option(help="Only this type, such as supersedes or contradicts.")] = None,
    limit: Limit = 50,
    as_json: JsonFlag = False,
) -> None:
    """List relations between memories, newest first. Candidates wait for a decision and have no effect yet."""
    from consolidation_pipeline.service.lifecycle.relations import list_relations

    engine, _ = open_store()
    found = list_relations(engine, project, limit=limit, status=status, relation_type=type)
    if as_json:
        print_json(found)
        return
    table = make_table("id", "type", "status", "confidence", title=f"{project}: {format_value(found['totals'])}")
    for relation in found["relations"]:
        columns = (relation["relation_type"], relation["status"], f"{relation['confidence']:.2f}")
        style = "dim" if relation["status"] == "rejected" else None
        table.add_row(_format_relation(relation), *columns, style=style)
    make_console().print(table if found["relations"] else f"{project} has no such relations")


def _format_relation(relation: Mapping[str, Any]) -> str:
    why = relation["reason"] or "no reason given"
    names = {"a": "newer", "b": "older"} if relation["relation_type"] == "supersedes" else {"a": "a", "b": "b"}
    ends = [f"  {names[end]}: {shorten(relation[f'{end}_text'] or 'deleted', _TEXT_WIDTH)}" for end in ("a", "b")]
    return "\n".join([str(relation["id"]), f"  {why}", *ends])


@app.command()
def confirm(relations: Relations, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Confirm relations. Links count for relevance from the next decay on. All or none.

    A memory that supersedes another one is found before it at once.
    """
    _decide(relations, "confirmed", reason, as_json=as_json)


@app.command()
def reject(relations: Relations, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Reject relations. They have no effect and are not proposed again. All or none."""
    _decide(relations, "rejected", reason, as_json=as_json)


def _decide(relations: list[str], status: str, reason: str | None, *, as_json: bool) -> None:
    from consolidation_pipeline.service.jobs.short_ids import RELATIONS, find_row_id
    from consolidation_pipeline.service.lifecycle.relations import decide_relations

    engine, _ = open_store()
    ids = [find_row_id(engine, RELATIONS, relation) for relation in relations]
    groups = decide_relations(engine, ids, status, changed_by=get_actor(), reason=reason)
    if as_json:
        decided = [{"id": id_, "group_id": group} for id_, group in groups.items()]
        print_json({"status": status, "relations": decided})
        return
    for id_, group in groups.items():
        print(f"relation {id_} {status}; undo: consolidation rollback {group}")
