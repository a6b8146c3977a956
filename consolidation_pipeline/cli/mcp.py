"""``consolidation mcp``: MCP server on standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import get_actor, read_settings

if TYPE_CHECKING:
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine


def mcp(
    project: Annotated[
        str | None, typer.Option(help="Serve only this project, created if missing; tools need not name it then.")
    ] = None,
) -> None:
    """Serve agents with MCP over standard input and output.

    MCP clients start it themselves; see README for their configuration. Runs that an agent requests are executed by
    this process. The MCP server over HTTP is part of `serve`.
    """
    from consolidation_pipeline.mcp.run_backends import InProcessRunBackend
    from consolidation_pipeline.mcp.server import ToolServer
    from consolidation_pipeline.mcp.tool_context import ServerContext
    from consolidation_pipeline.service.admin.api_keys import Principal

    settings = read_settings()
    local = Principal("admin", project=project, name=get_actor().removeprefix("cli:"))
    context = ServerContext(lambda: _open_store(settings, project), settings, InProcessRunBackend(_run_project), local)
    ToolServer(context, local.role).run("stdio")


def _open_store(settings: Settings, project: str | None) -> Engine:
    """Return the store, with the served project created if it is missing."""
    from consolidation_pipeline.service.intake.importer import ensure_project
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(settings)
    if project is not None:
        ensure_project(engine, project)
    return engine


def _run_project(slug: str, **arguments: Any) -> Any:
    from consolidation_pipeline.launch import run_project

    return run_project(slug, **arguments)
