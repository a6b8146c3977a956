"""Tools that read: search, context before a task, lineage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from consolidation_pipeline.mcp.output_schemas import ContextAnswer, Found, Lineage
from consolidation_pipeline.mcp.tool_arguments import Kinds, Levels, MemoryId, Project, Since, Tags, Types, Until
from consolidation_pipeline.mcp.tool_context import ToolContext, get_caller


def search_consolidated_memories(
    ctx: ToolContext,
    query: Annotated[str, Field(description="What you want to know, in any words.", min_length=1, max_length=10_000)],
    project: Project = "",
    *,
    limit: Annotated[int, Field(description="At most so many results.", ge=1, le=100)] = 10,
    levels: Levels = None,
    types: Types = None,
    kinds: Kinds = None,
    tags: Tags = None,
    since: Since = None,
    until: Until = None,
    include_archived: Annotated[bool, Field(description="Archived memories too.")] = False,
    include_sources: Annotated[bool, Field(description="Say what each was made from.")] = False,
    explain: Annotated[bool, Field(description="Say why each was found.")] = False,
) -> Found:
    """Search what a project has learned, by meaning and by words, best first.

    Use it when a question comes up during work: an error message, a module, a decision. Before a whole task
    get_consolidated_context is the better start. A merged memory stands in for the ones it was made from. Changes no
    knowledge; each result counts as used once, which keeps it from fading. Free with the default embedding model; a
    paid one embeds the query, within the project's budget.
    """
    from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search

    who = get_caller(ctx)
    asked = SearchQuery(
        query,
        limit=limit,
        levels=levels,
        types=types,
        kinds=kinds,
        tags=tags,
        since=since,
        until=until,
        include_archived=include_archived,
        include_sources=include_sources,
        explain=explain,
    )
    return Found.model_validate(search(who.engine, who.choose(project), asked, settings=who.settings))


def get_consolidated_context(
    ctx: ToolContext,
    task: Annotated[
        str,
        Field(description="The task you are about to start, in a few sentences.", min_length=1, max_length=10_000),
    ],
    project: Project = "",
    *,
    token_budget: Annotated[int, Field(description="At most about so many tokens of text.", ge=1, le=100_000)] = 2000,
) -> ContextAnswer:
    """What a project knows that matters for a task: playbook, principles, patterns, then single memories.

    Call it once before you start a task, and follow the playbook entries. Each fact is said once, at the most general
    level that has it. Changes no knowledge; what is returned counts as used once. Costs what one search costs.
    """
    from consolidation_pipeline.service.search.context import build_context

    who = get_caller(ctx)
    slug = who.choose(project)
    built = build_context(who.engine, slug, task, settings=who.settings, token_budget=token_budget)
    return ContextAnswer.model_validate(built)


def trace_memory_lineage(
    ctx: ToolContext,
    memory_id: MemoryId,
    depth: Annotated[int, Field(description="So many levels of sources.", ge=1, le=10)] = 3,
) -> Lineage:
    """Where a memory or playbook entry comes from, down to raw memories, and what became of it.

    Use it to check a claim before you rely on it, or to see which merged memory took a raw one in. Free; changes
    nothing.
    """
    from consolidation_pipeline.service.undo.lineage import trace_memory

    who = get_caller(ctx)
    who.own(memory_id, "memory")
    return Lineage.model_validate(trace_memory(who.engine, str(memory_id), depth=depth))
