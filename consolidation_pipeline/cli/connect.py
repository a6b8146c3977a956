"""``consolidation connect``: connect a store where agents keep their memories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.output import JsonFlag, fact_table, make_console, print_json, print_note, show_progress
from consolidation_pipeline.core.text.counted_nouns import counted

if TYPE_CHECKING:
    from consolidation_pipeline.connect.store import Recognition

_KINDS = (
    "mem0, langgraph, agno, llamaindex, claude_mem, letta; table for any table, with --table, --key and --text; "
    "folder for notes in Markdown, with --path"
)
_FIELD = "a column, or column.key for a value in JSON"


def connect(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"Kind of store: {_KINDS}.")],
    project: Annotated[str, typer.Option(help="Project for its memories; created if it is missing.")],
    url_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the URL of the store's database.")
    ] = None,
    path: Annotated[Path | None, typer.Option(help="Kind folder: the folder.")] = None,
    format: Annotated[
        str | None,
        typer.Option(help="Kind folder: claude-code, codex, cursor, openclaw or notes; default: by the marks it has."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the source; default: PROJECT-KIND.")] = None,
    table: Annotated[str | None, typer.Option(help="Table or collection; default: that of the kind.")] = None,
    mode: Annotated[
        str, typer.Option(help="mirror = only read; review = write what is approved; write = write by itself.")
    ] = "mirror",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What separates memories: a name such as user_id, for the kind table user_id=FIELD. May be repeated; "
            "default: all that the kind has."
        ),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Kind table: columns of the primary key, separated by commas.")
    ] = None,
    text: Annotated[str | None, typer.Option(help=f"Where the text is: {_FIELD}.")] = None,
    created: Annotated[str | None, typer.Option(help="Kind table: field of the creation time.")] = None,
    updated: Annotated[str | None, typer.Option(help="Kind table: field of the time of the last change.")] = None,
    metadata: Annotated[str | None, typer.Option(help="Kind table: JSON field that is kept as metadata.")] = None,
    vector: Annotated[str | None, typer.Option(help="Kind table: column of the vector.")] = None,
    embedding_model: Annotated[
        str | None, typer.Option(help="Model of its vectors; if it is the project's, they are taken along.")
    ] = None,
    memory_type: Annotated[str, typer.Option(help="Type of its memories.")] = "learning",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the store is connected.")] = False,
    sync: Annotated[bool, typer.Option("--sync/--no-sync", help="Copy its memories at once.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Connect a store: its memories are copied into a project and consolidated there.

    It is examined first, and nothing is changed in it before you agree. In mode mirror nothing is ever changed in it.
    """
    from consolidation_pipeline.service.sources.connections import check_names, connect_source, probe_source
    from consolidation_pipeline.service.sources.sync import sync_source

    given: dict[str, Any] = {
        "kind": kind,
        "url_env": url_env,
        "path": None if path is None else str(path),
        "format": format,
        "table": table,
        "scope": _read_scope(scope),
        "key": None if key is None else [column.strip() for each in key for column in each.split(",")],
        "text": text,
        "created": created,
        "updated": updated,
        "metadata": metadata,
        "vector": vector,
        "embedding_model": embedding_model,
        "memory_type": memory_type,
    }
    config = {field: value for field, value in given.items() if value is not None}
    source_name = name or f"{project}-{kind}"
    check_names(source_name, project, mode)
    found = probe_source(config, mode=mode)
    if not as_json:
        _show(found, source_name, project, mode)
        if not yes:
            typer.confirm("Connect it?", abort=True, err=True)
    engine, _ = open_store()
    connected = connect_source(engine, source_name, project=project, config=config, mode=mode)
    result = None
    if sync:
        with show_progress(f"copying {counted(found.memories, 'memory')}", as_json=as_json):
            result = sync_source(engine, source_name)
    if as_json:
        print_json({"source": source_name, "project": project, "mode": mode, "found": found, "sync": result})
        return
    if result is not None:
        print(
            f"{counted(result.added, 'memory')} added, {result.with_vectors:,} with their vectors; "
            f"{result.refused:,} refused" + (f"; {result.unchanged:,} are here already" if result.unchanged else "")
        )
        for note in result.notes:
            print_note(f"note: {note}")
        for reason in result.reasons:
            print_note(f"refused: {reason}")
    told = "tells of its changes" if connected.watched else "is compared row by row at each sync"
    print(f"source {source_name} {told}; next: consolidation plan {project}")


def _read_scope(given: list[str] | None) -> dict[str, str] | None:
    """Return scope names and their fields; of a kind that knows its fields the name is enough."""
    if given is None:
        return None
    parts = (part for each in given for part in each.split(","))
    return {name.strip(): field or name.strip() for name, _, field in (part.partition("=") for part in parts)}


def _show(found: Recognition, name: str, project: str, mode: str) -> None:
    rights = [
        word
        for word, has in (
            ("read", True),
            ("write", found.rights.write),
            (f"create {found.sidecar_name.partition(' ')[0]}", found.rights.create_schema),
            ("trigger", found.rights.watch),
        )
        if has
    ]
    rows = {
        "table": f"{found.table} ({found.kind}), {found.server}",
        "memories": f"{found.memories:,} in {counted(found.scopes, 'scope')}; {found.skipped:,} other rows left out",
        "vectors": "none" if found.dimension is None else f"of {found.dimension} dimensions",
        "rights": ", ".join(rights),
        "will do": f"copy them into project {project}; " + _describe_mode(mode, found.sidecar_name),
    }
    console = make_console(stderr=True)
    console.print(fact_table(f"source {name}, mode {mode}", rows))
    for warning in found.warnings:
        print_note(f"note: {warning}")


def _describe_mode(mode: str, sidecar: str) -> str:
    if mode == "mirror":
        return "nothing is changed in the store"
    who = "what you approve" if mode == "review" else "proven duplicates, up to 5 % of a scope at once"
    return f"create {sidecar} there; write {who}, undo by rollback"
