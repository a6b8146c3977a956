"""Tools that read: search, context for a task, lineage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from consolidation_pipeline.mcp.output_schemas import ContextAnswer, LineageAnswer, PlaybookAnswer, SearchAnswer
from consolidation_pipeline.mcp.tool_arguments import (
    AsOf,
    Kinds,
    Levels,
    MemoryId,
    Project,
    Scope,
    Since,
    Tags,
    Types,
    Until,
)
from consolidation_pipeline.mcp.tool_context import ToolContext, get_caller


def search_consolidated_memories(
    ctx: ToolContext,
    query: Annotated[str, Field(description="Question or keywords.", min_length=1, max_length=10_000)],
    project: Project = "",
    *,
    limit: Annotated[int, Field(description="Maximum number of results.", ge=1, le=100)] = 10,
    levels: Levels = None,
    types: Types = None,
    kinds: Kinds = None,
    tags: Tags = None,
    since: Since = None,
    until: Until = None,
    scope: Scope = "",
    as_of: AsOf = "",
    min_match: Annotated[
        float,
        Field(
            description="Lowest `match` of a result, 0 to 1. 0.2 loses few answers; from 0.4 on most are answers.",
            ge=0,
            le=1,
            allow_inf_nan=False,
        ),
    ] = 0.0,
    include_archived: Annotated[bool, Field(description="Include archived memories.")] = False,
    include_sources: Annotated[bool, Field(description="Return the sources that each result was made from.")] = False,
    explain: Annotated[bool, Field(description="Explain why each result was found.")] = False,
) -> SearchAnswer:
    """Search a project's memories by meaning and by keywords, best match first.

    Use it for a question during work: an error message, a module, a decision. A newer memory comes before the one whose
    place it takes; follow the newer one. Before a whole task, call
    get_consolidated_context instead. A merged memory is returned in place of the memories it was made from. Changes no
    memory; each result counts as used once, which delays its archiving. Free with the default embedding model; a paid
    model embeds the query within the project's budget.
    """
    from consolidation_pipeline.service.search.as_of import parse_as_of
    from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search

    caller = get_caller(ctx, of_scope=True)
    found = caller.find_project(project)
    search_query = SearchQuery(
        query,
        limit=limit,
        levels=levels,
        types=types,
        kinds=kinds,
        tags=tags,
        since=since,
        until=until,
        scope=caller.limit_scope(scope, found),
        as_of=parse_as_of(as_of),
        min_match=min_match,
        include_archived=include_archived,
        include_sources=include_sources,
        explain=explain,
    )
    return SearchAnswer(search(caller.engine, found.slug, search_query, settings=caller.settings))


def get_consolidated_context(
    ctx: ToolContext,
    task: Annotated[
        str,
        Field(description="The task that you are about to start, in a few sentences.", min_length=1, max_length=10_000),
    ],
    project: Project = "",
    *,
    token_budget: Annotated[
        int, Field(description="Maximum number of tokens of text (estimated).", ge=1, le=100_000)
    ] = 2000,
    scope: Scope = "",
    as_of: AsOf = "",
) -> ContextAnswer:
    """Return what a project knows about a task: instructions, what is known and disputed, where to look for more.

    Call it once before you start a task, and follow the playbook entries. Each sentence appears once, with the id of
    its memory. Changes no memory; each result counts as used once. Costs the same as one search.
    """
    from consolidation_pipeline.service.search.as_of import parse_as_of
    from consolidation_pipeline.service.search.context import build_context

    caller = get_caller(ctx, of_scope=True)
    found = caller.find_project(project)
    built = build_context(
        caller.engine,
        found.slug,
        task,
        settings=caller.settings,
        token_budget=token_budget,
        scope=caller.limit_scope(scope, found),
        as_of=parse_as_of(as_of),
    )
    return ContextAnswer.model_validate(built)


def read_playbook(
    ctx: ToolContext,
    project: Project = "",
    *,
    category: Annotated[str, Field(description="Only this category, such as gotchas or testing.")] = "",
    limit: Annotated[int, Field(description="Maximum number of entries.", ge=1, le=1000)] = 100,
    as_of: AsOf = "",
) -> PlaybookAnswer:
    """Return a project's playbook: the instructions for agents, the most important first.

    Before a task, get_consolidated_context is enough: it has the instructions for that task. Free; changes nothing.
    """
    from consolidation_pipeline.service.playbook.entries import read_playbook
    from consolidation_pipeline.service.search.as_of import parse_as_of

    caller = get_caller(ctx)
    slug, when = caller.resolve_project(project), parse_as_of(as_of)
    found = read_playbook(caller.engine, slug, limit=limit, category=category or None, as_of=when)
    return PlaybookAnswer.model_validate(found)


def trace_memory_lineage(
    ctx: ToolContext,
    memory_id: MemoryId,
    depth: Annotated[int, Field(description="Number of source levels to return.", ge=1, le=10)] = 3,
    *,
    project: Project = "",
) -> LineageAnswer:
    """Trace a memory or playbook entry: its sources down to raw memories, and what was made from it.

    Use it to check a claim before you rely on it, or to find the merged memory that replaced a raw one. Free; changes
    nothing.
    """
    from consolidation_pipeline.service.undo.lineage import trace_memory

    caller = get_caller(ctx)
    id_ = caller.find_memory(memory_id, project=project)
    return LineageAnswer(trace_memory(caller.engine, str(id_), depth=depth))
