"""``consolidation mcp``: the MCP server on standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import read_settings

if TYPE_CHECKING:
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine


def mcp(
    project: Annotated[
        str | None, typer.Option(help="Only this project, made when it is missing; tools need not name it then.")
    ] = None,
) -> None:
    """Serve agents over stdio, as MCP clients start it; README has the configuration.

    A run that an agent asks for is done by this process. The server over HTTP is part of `serve`.
    """
    from consolidation_pipeline.mcp.run_backends import InProcessRunBackend
    from consolidation_pipeline.mcp.server import ToolServer
    from consolidation_pipeline.mcp.tool_context import ServerContext
    from consolidation_pipeline.service.admin.api_keys import Principal

    settings = read_settings()
    local = Principal("admin", project=project, name=_user())
    context = ServerContext(lambda: _open(settings, project), settings, InProcessRunBackend(_run), local)
    ToolServer(context, local.role).run("stdio")


def _user() -> str:
    from consolidation_pipeline.cli.cli_context import get_actor

    return get_actor().removeprefix("cli:")


def _open(settings: Settings, project: str | None) -> Engine:
    """The store, and in it the project that the server was started for."""
    from consolidation_pipeline.service.intake.importer import ensure_project
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(settings)
    if project is not None:
        ensure_project(engine, project)
    return engine


def _run(slug: str, **how: Any) -> Any:
    from consolidation_pipeline.launch import run_project

    return run_project(slug, **how)


COMMANDS = (mcp,)
