"""``consolidation source``: connected stores."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.output import (
    JsonFlag,
    format_value,
    make_console,
    make_table,
    print_json,
    print_note,
    shorten,
    show_progress,
)
from consolidation_pipeline.core.text.counted_nouns import counted, plural
from consolidation_pipeline.errors import ConflictError, NotFoundError, StoreError, UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.connect.store import Conflict
    from consolidation_pipeline.service.sources.rehearsal import Rehearsed

app = typer.Typer(no_args_is_help=True, help="Sync, write to and disconnect stores that `connect` connected.")

Name = Annotated[str, typer.Argument(metavar="SOURCE", help="The source, as `source list` shows it.")]
Groups = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[GROUP]...",
        help="Groups by the ids of `source diff` or their first 8 digits, or their merged memories.",
    ),
]
_TEXT_WIDTH = 100
# Rows that a message names.
_SHOWN_ROWS = 20
# Why groups wait, by the reason of a result.
_WAITING = {
    "review": "in mode review what you name is written: `source write {name} ID..`, or --all",
    "recent": "one of their rows changed within the last ten minutes",
    "share": "a write without a choice hides at most 5 % of the rows of a scope, or one group; the next one goes on",
}


@app.command(name="list")
def list_(as_json: JsonFlag = False) -> None:
    """List connected stores with their last sync."""
    from consolidation_pipeline.service.sources.connections import list_connected
    from consolidation_pipeline.service.sources.update import find_failing

    engine, _ = open_store()
    found = list_connected(engine)
    if as_json:
        print_json({"sources": found})
        return
    table = make_table("name", "project", "kind", "mode", "synced", "last sync")
    for source in found:
        numbers = {key: value for key, value in source.last_sync.items() if value and isinstance(value, int)}
        table.add_row(
            source.name,
            source.project,
            source.config["kind"],
            source.mode,
            format_value(source.synced_at) if source.synced_at else "never",
            format_value(numbers),
        )
    make_console().print(table if found else "no store is connected: consolidation connect --help")
    for source in found:
        if (failing := find_failing(source)) is not None:
            print_note(f"{source.name}: {failing.describe()}")


@app.command()
def sync(name: Name, as_json: JsonFlag = False) -> None:
    """Bring a project up to date with its store: new, changed and deleted rows."""
    from consolidation_pipeline.service.sources.sync import sync_source

    engine, _ = open_store()
    with show_progress(f"sync {name}", as_json=as_json):
        result = sync_source(engine, name)
    if as_json:
        print_json({"source": name, "sync": result})
        return
    print(
        f"{name}: {result.added:,} added, {result.revised:,} revised, {result.gone:,} gone, "
        f"{result.unchanged:,} unchanged, {result.refused:,} refused"
    )
    for note in result.notes:
        _tell(note)
    for reason in result.reasons:
        print_note(f"refused: {reason}")


@app.command()
def diff(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of groups; --out has all.")] = 20,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file, for `source write --plan`.")] = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="Try each group in the store, take it back, and tell which would be refused.")
    ] = False,
    copy_url_env: Annotated[
        str | None,
        typer.Option(help="With --gate: variable with the URL of a copy of the store's database, in which to try."),
    ] = None,
    patch: Annotated[
        Path | None, typer.Option(help="Write the changes of a folder to this file, for `git apply`; - = print it.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what `source write` would keep, add, hide and show again in the store, row by row. Changes nothing.

    Each group begins with its id, which `source write`, `source undo` and, once it is written, `rollback` take. Remove
    groups from the file of --out, and `source write --plan FILE` writes the others and nothing else.
    """
    from consolidation_pipeline.service.runs.plan_file import save_plan, write_file
    from consolidation_pipeline.service.sources.connections import list_connected
    from consolidation_pipeline.service.sources.rehearsal import rehearse_writes
    from consolidation_pipeline.service.sources.rights import explain_mirror
    from consolidation_pipeline.service.sources.write_plan import (
        WritePlan,
        describe_left_out,
        describe_taken,
        make_patch,
        plan_restores,
        plan_writes,
    )

    if copy_url_env and not gate:
        raise UsageError("--copy-url-env says where --gate tries the groups: give --gate too")
    engine, _ = open_store()
    planned = plan_writes(engine, name)
    restores = plan_restores(engine, name)
    notes = [*describe_taken(engine, name), *describe_left_out(engine, name)]
    outcomes: dict[UUID, Rehearsed] = {}
    if gate:
        with show_progress(f"trying {counted(len(planned), 'group')} in the store", as_json=as_json):
            outcomes = rehearse_writes(engine, name, planned, copy_url_env=copy_url_env)
    if patch is not None:
        data = make_patch(engine, name, planned)
        if str(patch) == "-":
            sys.stdout.buffer.write(data)
            return
        write_file(data, patch)
    if out is not None:
        save_plan(WritePlan(source=name, groups=planned, restores=restores), out)
    if as_json:
        shown = [plan.model_dump(mode="json") for plan in planned[:limit]]
        tried = {str(id_): outcome for id_, outcome in outcomes.items()} if gate else None
        print_json(
            {
                "source": name,
                "total": len(planned),
                "groups": shown,
                "restores": [restore.model_dump(mode="json") for restore in restores],
                "notes": notes,
                "gate": tried,
            }
        )
        return
    for plan in planned[:limit]:
        print(plan.id)
        for key, body in plan.texts.items():
            print(f"  {'keep' if key == plan.keep else 'hide'}  {key}  {shorten(body, _TEXT_WIDTH)}")
        if plan.keep is None:
            print(f"  add   {' '.join(plan.text.split())}")
        if gate:
            print(f"  gate  {_describe_outcome(outcomes[plan.memory_id])}")
    for restore in restores[:limit]:
        print(f"{restore.id}  its merged memory is not there any more")
        for key, body in restore.texts.items():
            print(f"  show  {key}  {shorten(body, _TEXT_WIDTH)}")
        if restore.removed is not None:
            print(f"  drop  {shorten(restore.removed, _TEXT_WIDTH)}")
    hidden = sum(len(plan.hidden) for plan in planned)
    refused = sum(outcome.refusal is not None for outcome in outcomes.values())
    told = f"; {counted(refused, 'group')} would be refused" if gate else ""
    shown_again = sum(len(restore.texts) for restore in restores)
    told += f"; {counted(shown_again, 'row')} would be shown again" if restores else ""
    print(f"{counted(len(planned), 'group')}; {counted(hidden, 'row')} would be hidden{told}")
    for sentence in notes:
        _tell(sentence)
    if len(planned) > limit:
        print_note(f"note: {counted(limit, 'group')} shown; --limit {len(planned)} shows all")
    if not planned and not restores:
        return
    if out is not None:
        print(f"apply: consolidation source write {name} --plan {out}")
    elif mirrored := [one for one in list_connected(engine) if one.name == name and one.mode == "mirror"]:
        print_note(f"note: {explain_mirror(mirrored[0])}")
    else:
        print_note(f"next: consolidation source write {name} ID..; undo: consolidation rollback ID")


def _describe_outcome(outcome: Rehearsed) -> str:
    if outcome.refusal is not None:
        return f"refused: {outcome.refusal}"
    links = f"; {outcome.links:,} links would be changed" if outcome.links else ""
    return f"{outcome.found}{links}"


@app.command()
def mode(
    name: Name, mode: Annotated[str, typer.Argument(help="mirror, review or write; see `connect --help`.")]
) -> None:
    """Change the mode of a source. The sidecar in the store is made, or removed for a mirror."""
    from consolidation_pipeline.service.sources.connections import set_mode

    engine, _ = open_store()
    set_mode(engine, name, mode)
    print(f"{name} is in mode {mode}")


@app.command()
def write(
    name: Name,
    groups: Groups = None,
    all_: Annotated[bool, typer.Option("--all", help="Write all that `source diff` shows.")] = False,
    plan: Annotated[
        Path | None, typer.Option(help="Write the groups of this file of `source diff --out`; refused if any changed.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write merged memories into the store: groups that you name, a plan, or all, up to 5 % of a scope at once.

    A row that says everything is kept, the others are removed with their images in schema consolidation_sidecar. A
    group whose successor the store's own search would find worse is not written. `rollback` undoes both sides.
    """
    from consolidation_pipeline.service.runs.plan_file import load_plan
    from consolidation_pipeline.service.sources.write_back import write_source
    from consolidation_pipeline.service.sources.write_plan import WritePlan
    from consolidation_pipeline.service.sources.write_selection import find_groups

    if sum([all_, bool(groups), plan is not None]) > 1:
        raise UsageError("give groups, --all or --plan, only one of them")
    printed, made_by = ("total", "notes", "gate"), "consolidation source diff --out"
    loaded = None if plan is None else load_plan(WritePlan, plan, made_by=made_by, told=printed)
    engine, _ = open_store()
    with show_progress(f"writing to {name}", as_json=as_json):
        named = find_groups(engine, name, groups) if groups else None
        result = write_source(engine, name, memory_ids=named, plan=loaded, everything=all_)
    # Of --all and a write without a choice the others are written, and a later one may take these.
    code = ConflictError.exit_code if result.refused and (groups or plan is not None) else 0
    if as_json:
        print_json({"source": name, "write": result})
        raise typer.Exit(code)
    print(
        f"{name}: {counted(result.written, 'group')} written, {counted(result.hidden, 'row')} hidden, "
        f"{result.inserted:,} added; {result.waiting:,} waiting, {len(result.refused):,} refused"
    )
    if result.restored:
        told = "its merged memory is" if result.restored == 1 else "their merged memories are"
        print(f"{counted(result.restored, 'earlier write')} undone, as {told} not there any more")
    for sentence in result.notes:
        _tell(sentence)
    for reason, number in result.waiting_for.items():
        _tell(f"{counted(number, 'group')} {plural(number, 'waits')}: {_WAITING[reason].format(name=name)}")
    for group_id, refusal in list(result.refused.items())[:10]:
        print_note(f"refused {group_id}: {refusal}")
    raise typer.Exit(code)


@app.command()
def undo(name: Name, groups: Groups = None, as_json: JsonFlag = False) -> None:
    """Undo writes in the store only: those of the groups that you name, or all. The project stays as it is."""
    from consolidation_pipeline.service.sources.undo_all import undo_everything
    from consolidation_pipeline.service.sources.write_back import undo_writes
    from consolidation_pipeline.service.sources.write_selection import find_groups

    engine, _ = open_store()
    named = find_groups(engine, name, groups) if groups else None
    conflicts = undo_writes(engine, name, named, tell=_tell) if named else undo_everything(engine, name, tell=_tell)
    _end(conflicts, f"{name}: everything asked for is undone", as_json=as_json)


@app.command()
def disconnect(
    name: Name,
    restore: Annotated[
        bool | None,
        typer.Option("--restore/--keep", help="Undo all writes and remove the sidecar, or leave the store as it is."),
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="The store is gone, or cannot be reached: do not open it.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """End the connection of a store. Its memories stay in the project."""
    from consolidation_pipeline.service.sources.connections import disconnect_source, forget_source

    if forget == (restore is not None):
        raise UsageError("give one of --restore, --keep and --forget")
    engine, _ = open_store()
    if restore is None:
        written, address = forget_source(engine, name)
        print_note(
            f"note: {name} was not opened. If it is there still, schema consolidation_sidecar and its trigger are too, "
            f"and {counted(written, 'written group')}: consolidation source restore {address}"
        )
        _end({}, f"{name} is forgotten", as_json=as_json)
        return
    try:
        conflicts = disconnect_source(engine, name, restore=restore, tell=_tell)
    except NotFoundError:
        raise
    except (UsageError, StoreError) as error:
        raise type(error)(
            f"{error}. If the store is gone for good: consolidation source disconnect {name} --forget"
        ) from error
    _end(
        conflicts, f"{name} is disconnected", as_json=as_json, way_out=f"consolidation source disconnect {name} --keep"
    )


@app.command()
def restore(
    url_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the URL of the store's database.")
    ] = None,
    path: Annotated[Path | None, typer.Option(help="The folder, for one of notes.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Undo all writes in a store from its sidecar alone, if our database is lost, and remove it with its triggers."""
    from consolidation_pipeline.service.sources.connections import restore_folder, restore_store

    if (url_env is None) == (path is None):
        raise UsageError("give --url-env or --path, one of them")
    conflicts = restore_store(url_env) if url_env is not None else restore_folder(path or Path())
    removed = ", and schema consolidation_sidecar is removed with its triggers" if url_env is not None else ""
    give_up = "DROP SCHEMA consolidation_sidecar CASCADE, in the store" if url_env is not None else None
    _end(conflicts, f"everything that was written is undone{removed}", as_json=as_json, way_out=give_up)


def _tell(sentence: str) -> None:
    print_note(f"note: {sentence}")


def _end(
    conflicts: Mapping[UUID, Sequence[Conflict]], message: str, *, as_json: bool, way_out: str | None = None
) -> None:
    """Tell that it is done, or raise ConflictError with what stands in the way.

    Args:
        way_out: Command or statement after which these rows stay hidden for good.
    """
    if conflicts:
        lines = [f"{id_}: {each.reason}, {each.place}" for id_, found in conflicts.items() for each in found]
        raise ConflictError(
            f"{counted(len(conflicts), 'group')} not undone, as the store's program changed what was written: "
            f"{'; '.join(lines[:5])}{_describe_hidden(conflicts)}{f'. To leave them so: {way_out}' if way_out else ''}",
            tuple(each.key for found in conflicts.values() for each in found if each.key),
        )
    if as_json:
        payload: dict[str, Any] = {"undone": True}
        print_json(payload)
        return
    print(message)


def _describe_hidden(conflicts: Mapping[UUID, Sequence[Conflict]]) -> str:
    hidden = sorted({key for found in conflicts.values() for each in found for key in each.hidden})
    more = ", .." if len(hidden) > _SHOWN_ROWS else ""
    return f"; {counted(len(hidden), 'row')} still hidden: {', '.join(hidden[:_SHOWN_ROWS])}{more}" if hidden else ""
