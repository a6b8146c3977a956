"""Tools that read connected stores: list, diff. Writes are for the command line, HTTP and Dagster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from consolidation_pipeline.mcp.output_schemas import SourceDiffAnswer, SourceListAnswer
from consolidation_pipeline.mcp.tool_arguments import Project
from consolidation_pipeline.mcp.tool_context import ToolContext, get_caller


def list_sources(ctx: ToolContext, project: Project = "") -> SourceListAnswer:
    """List the stores of other programs that are connected with a project, with their last sync.

    Free; changes nothing, and reads nothing from the stores.
    """
    from consolidation_pipeline.service.sources.connections import describe_table, list_connected

    caller = get_caller(ctx)
    found = caller.find_project(project)
    listed = [
        {**vars(source), "kind": source.config["kind"], "table": describe_table(source)}
        for source in list_connected(caller.engine, found.id)
    ]
    return SourceListAnswer.model_validate({"project": found.slug, "sources": listed})


def read_source_diff(
    ctx: ToolContext,
    source: Annotated[str, Field(description="Name of the source, as list_sources returns it.", min_length=1)],
    project: Project = "",
    *,
    limit: Annotated[int, Field(description="Maximum number of groups and of restores.", ge=1, le=1000)] = 20,
) -> SourceDiffAnswer:
    """Show what would be kept, added, hidden and shown again in a connected store, merged memory by merged memory.

    A person writes and undoes it on the command line or over HTTP, by the id of a group. Free; changes nothing.
    """
    from consolidation_pipeline.errors import NotFoundError
    from consolidation_pipeline.service.sources.connections import list_connected
    from consolidation_pipeline.service.sources.write_plan import plan_restores, plan_writes

    caller = get_caller(ctx)
    found = caller.find_project(project)
    known = [one.name for one in list_connected(caller.engine, found.id)]
    if source not in known:
        listed = ", ".join(known) or "none"
        raise NotFoundError(f"there is no source {source!r} in project {found.slug}; sources: {listed}")
    planned = plan_writes(caller.engine, source)
    restores = plan_restores(caller.engine, source)[:limit]
    diff = {"source": source, "total": len(planned), "groups": planned[:limit], "restores": restores}
    return SourceDiffAnswer.model_validate(diff)
