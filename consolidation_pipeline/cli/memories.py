"""``consolidation add`` and ``consolidation memories``: memories one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Project, Reason, find_id, find_ids, get_actor, open_store
from consolidation_pipeline.cli.output import (
    JsonFlag,
    fact_table,
    format_value,
    make_console,
    make_table,
    print_json,
    print_note,
    shorten,
)
from consolidation_pipeline.errors import InvalidMemoryError, UsageError

app = typer.Typer(no_args_is_help=True, help="List, show, edit and delete memories one by one.")

_SOURCE = "cli"
_TEXT_WIDTH = 60

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a memory.")]
Type = Annotated[str | None, typer.Option("--type", help="Memory type.")]
Goal = Annotated[str | None, typer.Option(help="Goal of the task.")]
Result = Annotated[str | None, typer.Option(help="Result of the task.")]
Lessons = Annotated[str | None, typer.Option("--lessons-learned", help="What to do next time.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Tag; may be given several times.")]
Files = Annotated[list[str] | None, typer.Option("--file", help="Path of a file it is about; may be repeated.")]
Success = Annotated[bool | None, typer.Option("--success/--failure", help="Whether the task succeeded.")]
Importance = Annotated[float | None, typer.Option(help="0 or more; 0.5 by default.")]
User = Annotated[str | None, typer.Option("--user", help="Person the agent worked for.")]
Session = Annotated[str | None, typer.Option("--session", help="Session it was written in.")]


def add(
    project: Project,
    content: Annotated[str, typer.Argument(metavar="TEXT", help="The lesson; - reads it from standard input.")],
    type_: Type = None,
    goal: Goal = None,
    result: Result = None,
    lessons_learned: Lessons = None,
    tag: Tags = None,
    file: Files = None,
    success: Success = None,
    importance: Importance = None,
    user: User = None,
    session: Session = None,
    external_id: Annotated[
        str | None, typer.Option("--id", help="Your own id. Default: the content is its id.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Add one memory to a project. Adding the same again changes nothing."""
    from consolidation_pipeline.service.intake.agent_memories import add_memories, get_memory

    engine, settings = open_store()
    fields = _collect_fields(
        _read_content(content), type_, goal, result, lessons_learned, tag, file, success, importance
    )
    row = fields | {"user_id": user, "session_id": session, "id": external_id}
    given = {name: value for name, value in row.items() if value is not None}
    done = add_memories(engine, project, [given], source=_SOURCE, changed_by=get_actor(), settings=settings)
    for _, message in done.errors:
        raise InvalidMemoryError(message)
    (id_,) = done.ids
    assert id_ is not None
    status = "added" if done.added else "existing"
    if as_json:
        print_json({"id": id_, "project": project, "status": status})
        return
    print(f"{'added' if done.added else 'stored before'}: {id_}")
    hidden = "" if done.added else get_memory(engine, id_)["status"]
    if hidden == "deleted":
        print_note(f"it was deleted since, and stays hidden: `consolidation history {project}` shows what to roll back")
    elif hidden == "archived":
        print_note(f"it is archived: `consolidation restore {id_}` brings it back")


@app.command("list")
def list_(
    project: Project,
    kind: Annotated[str, typer.Option(help="raw, merged, pattern, summary, principle, procedural or all.")] = "raw",
    status: Annotated[
        str | None, typer.Option(help="active, merged, archived, deleted, superseded or retired. Default: all.")
    ] = None,
    type_: Type = None,
    user: User = None,
    session: Session = None,
    text: Annotated[str | None, typer.Option(help="Words that it contains, whatever their case.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of rows.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Cursor of the page, as the page before printed it.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List memories, those stored last first, deleted ones too."""
    from consolidation_pipeline.service.intake.memory_listing import list_memories

    engine, _ = open_store()
    page = list_memories(
        engine,
        project,
        kind=None if kind == "all" else kind,
        status=status,
        memory_type=type_,
        user_id=user,
        session_id=session,
        text=text,
        limit=limit,
        cursor=cursor,
    )
    if as_json:
        print_json(vars(page))
        return
    table = make_table("id", "created", "kind", "type", "status", "content")
    for row in page.memories:
        created = format_value(row["created_at"])
        table.add_row(
            str(row["id"]),
            created,
            row["kind"],
            row["memory_type"],
            row["status"],
            shorten(row["content"], _TEXT_WIDTH),
        )
    make_console().print(table, soft_wrap=True)
    if page.next:
        print(f"more: --cursor {page.next}")


@app.command()
def show(id_: Id, as_json: JsonFlag = False) -> None:
    """Show a memory with all its fields."""
    from consolidation_pipeline.service.intake.agent_memories import get_memory

    engine, _ = open_store()
    found = get_memory(engine, find_id(engine, id_))
    if as_json:
        print_json(found)
        return
    content = found.pop("content")
    feedback = found.pop("feedback_given")
    found |= {"feedback_given": [one["words"] for one in feedback] or None}
    hidden = {"execution_summary"}
    facts = {name: value for name, value in found.items() if name not in hidden and value not in (None, [], {}, "")}
    console = make_console()
    console.print(fact_table(f"{found['kind']} memory", facts), soft_wrap=True)
    console.print(f"\n{content}", soft_wrap=True)


@app.command()
def edit(
    id_: Id,
    content: Annotated[str | None, typer.Option(help="The new lesson; - reads it from standard input.")] = None,
    type_: Type = None,
    goal: Goal = None,
    result: Result = None,
    lessons_learned: Lessons = None,
    tag: Tags = None,
    file: Files = None,
    success: Success = None,
    importance: Importance = None,
    version: Annotated[
        int | None, typer.Option(help="Version that you read: refused if it is another one now.")
    ] = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Change fields of a raw memory; the others stay. An empty text or tag empties the field.

    The ledger keeps the old text. If text or type change, what was derived from it goes out of use, and the next run
    derives it again.
    """
    from consolidation_pipeline.service.intake.agent_memories import embed_edited
    from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory

    text = None if content is None else _read_content(content)
    fields = _collect_fields(text, type_, goal, result, lessons_learned, tag, file, success, importance)
    given = {name: value for name, value in fields.items() if value is not None}
    engine, settings = open_store()
    memory_id = find_id(engine, id_)
    done = edit_memory(engine, memory_id, given, changed_by=get_actor(), reason=reason, version=version)
    embed_edited(engine, done, settings=settings)
    if as_json:
        print_json(vars(done))
        return
    print(f"changed: {format_value(list(done.changed))}" + _describe_derived(done.derived))
    if done.group_id:
        print(f"  undo: consolidation rollback {done.group_id}")


@app.command()
def delete(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of memories of one project.")],
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete memories, with everything that was derived from them; a merged one with its sources. It can be undone.

    They are hidden at once from search, context, playbook and the next runs. `erase` removes them for good.
    """
    from consolidation_pipeline.service.lifecycle.memory_deletion import delete_memories

    engine, _ = open_store()
    done = delete_memories(engine, find_ids(engine, ids), changed_by=get_actor(), reason=reason)
    if as_json:
        print_json(vars(done))
        return
    print(f"deleted: {len(done.memories)}" + _describe_derived(done.derived))
    print(f"  undo: consolidation rollback {done.group_id}")


def _collect_fields(
    content: str | None,
    memory_type: str | None,
    goal: str | None,
    result: str | None,
    lessons_learned: str | None,
    tags: list[str] | None,
    files: list[str] | None,
    success: bool | None,
    importance: float | None,
) -> dict[str, Any]:
    return {
        "content": content,
        "memory_type": memory_type,
        "goal": goal,
        "result": result,
        "lessons_learned": lessons_learned,
        "tags": tags or None,
        "files": files or None,
        "success": success,
        "importance": importance,
    }


def _read_content(content: str) -> str:
    """Return the text, or that of standard input. Raise UsageError if it is not UTF-8."""
    if content != "-":
        return content
    try:
        return typer.get_text_stream("stdin", encoding="utf-8").read().strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8: {error}") from None


def _describe_derived(derived: Mapping[str, int]) -> str:
    return f"; out of use until the next run: {format_value(derived)}" if derived else ""
