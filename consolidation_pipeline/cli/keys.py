"""``consolidation keys``: create, list, revoke."""

from __future__ import annotations

from typing import Annotated

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.output import JsonFlag, format_value, make_console, make_table, print_json, print_note

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke keys of the HTTP API and MCP.")


@app.command()
def create(
    role: Annotated[str, typer.Option(help="reader (search), agent (search and add memories) or admin (everything).")],
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Restrict the key to this project; default: all projects.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the key, such as its purpose.")] = None,
    scope: Annotated[
        str | None, typer.Option(help="Restrict the key to this scope of the project, such as a user id.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a key and print it once. Only its hash is stored."""
    from consolidation_pipeline.service.admin.api_keys import create_key

    engine, _ = open_store()
    key, secret = create_key(engine, role=role, project=project, name=name, scope=scope)
    if as_json:
        print_json({"key": secret, **vars(key)})
        return
    print(secret, flush=True)
    print_note(f"{key.role} key {key.id} ({key.name}) for {key.project or 'all projects'}; it is not shown again")
    print_note(f"send it as `Authorization: Bearer ...`; undo: consolidation keys revoke {key.id}")


@app.command(name="list")
def list_(as_json: JsonFlag = False) -> None:
    """List all keys, also revoked ones. The secrets are not stored and not shown."""
    from consolidation_pipeline.service.admin.api_keys import list_keys

    engine, _ = open_store()
    found = list_keys(engine)
    if as_json:
        print_json({"keys": [vars(key) for key in found]})
        return
    table = make_table("id", "name", "role", "project", "scope", "created", "last used", "revoked")
    for key in found:
        created, used = format_value(key.created_at), format_value(key.last_used_at or "never")
        revoked = format_value(key.revoked_at or "")
        owner = key.project or "all", key.scope or "all"
        table.add_row(str(key.id), key.name, key.role, *owner, created, used, revoked)
    make_console().print(table if found else "no keys yet: `consolidation keys create --role agent` makes one")


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Name of the key, or its id or first 8 digits.")],
    as_json: JsonFlag = False,
) -> None:
    """Revoke a key. It stops working within a second."""
    from consolidation_pipeline.service.admin.api_keys import revoke_key

    engine, _ = open_store()
    revoked = revoke_key(engine, key)
    if as_json:
        print_json(vars(revoked))
    else:
        print(f"{revoked.role} key {revoked.id} ({revoked.name}) is revoked")
