"""``consolidation search``: memories of a project by meaning and by words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from consolidation_pipeline.cli.cli_context import AS_OF_HELP, SCOPE_HELP, Project, check_texts, open_store
from consolidation_pipeline.cli.output import JsonFlag, make_console, print_json, print_note, shorten
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.core.search.results import MemoryVersion, SearchHit, SearchResults

_TEXT_WIDTH = 400
_SOURCE_WIDTH = 100


def search(
    project: Project,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Text to search for.")],
    limit: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of results.")] = 10,
    level: Annotated[list[int] | None, typer.Option(help="Only this level, 0 (raw) to 3. Repeatable.")] = None,
    type: Annotated[list[str] | None, typer.Option(help="Only this memory type, such as decision. Repeatable.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind: raw, merged, pattern, ... Repeatable.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag. Repeatable: any of them.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Learned at this time or later: a day or an ISO 8601 time, UTC.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Learned at this time or earlier; a day counts to its end.")] = None,
    scope: Annotated[str | None, typer.Option(help=SCOPE_HELP)] = None,
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP)] = None,
    min_match: Annotated[
        float, typer.Option(min=0, max=1, help="Lowest match of a result, 0 to 1; 0.2 loses few answers.")
    ] = 0.0,
    include_archived: Annotated[bool, typer.Option("--include-archived", help="Include archived memories.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Show the sources of each result.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show why each result was found.")] = False,
    fusion: Annotated[
        Literal["default", "rrf", "zscore"],
        typer.Option(help="Method that fuses the rankings by meaning and by words."),
    ] = "default",
    as_json: JsonFlag = False,
) -> None:
    """Search a project by meaning and by words.

    Shown memories count as used, which slows their decay.
    """
    from consolidation_pipeline.service.search.as_of import parse_as_of
    from consolidation_pipeline.service.search.hybrid_search import SearchQuery
    from consolidation_pipeline.service.search.hybrid_search import search as search_project
    from consolidation_pipeline.service.search.typed_scopes import resolve_scope, tell_unknown_scope

    if not query.strip():
        raise UsageError(f"QUERY is {query!r}: give words to search for")
    check_texts(query=query, scope=scope)
    engine, settings = open_store()
    search_query = SearchQuery(
        query,
        limit=limit,
        levels=level,
        types=type,
        kinds=kind,
        tags=tag,
        since=_parse_time("--since", since),
        until=_parse_time("--until", until, to_end_of_day=True),
        scope=resolve_scope(engine, project, scope),
        min_match=min_match,
        include_archived=include_archived,
        include_sources=sources,
        fusion=fusion,
        explain=explain,
        as_of=parse_as_of(as_of),
    )
    found = search_project(engine, project, search_query, settings=settings)
    if as_json:
        print_json(vars(found))
    else:
        _print_results(found, explain=explain)
        if not found.results and (unknown := tell_unknown_scope(engine, project, search_query.scope)):
            print_note(unknown)


def _parse_time(name: str, given: str | None, *, to_end_of_day: bool = False) -> datetime | None:
    """Return the time that an option gives. A day means its start or, with ``to_end_of_day``, its last microsecond.

    Raises:
        UsageError: ``given`` is neither a day nor an ISO 8601 time.
    """
    if given is None:
        return None
    try:
        instant = datetime.fromisoformat(given)
    except ValueError:
        raise UsageError(f"{name} is {given!r}: give a day such as 2026-01-31, or an ISO 8601 time") from None
    is_day = len(given) <= len("2026-01-31")
    return instant + timedelta(days=1, microseconds=-1) if to_end_of_day and is_day else instant


def _print_results(found: SearchResults, *, explain: bool) -> None:
    if found.note:
        print_note(found.note)
    if not found.results:
        print(f"{found.project} has no matching memories")
        return
    for rank, hit in enumerate(found.results, 1):
        make_console().print("\n".join(_result_lines(rank, hit, explain=explain)), soft_wrap=True)
    shown = len(found.results)
    print(f"{shown} of {found.total_found} found in {found.search_time_ms:.0f} ms")


def _result_lines(rank: int, hit: SearchHit, *, explain: bool) -> list[str]:
    details = [hit.kind, hit.memory_type, f"{hit.learned_at:%Y-%m-%d}"]
    details.append(f"match {hit.match:.2f}")
    details += [f"similarity {hit.similarity:.2f}"] if hit.similarity is not None else []
    details += [f"rank {hit.keyword_rank} by words"] if hit.keyword_rank is not None else []
    details += [counted(hit.source_count, "memory")] if hit.source_count else []
    lines = [f"{rank}. {hit.id}  ({', '.join(details)})", f"   {shorten(hit.content, _TEXT_WIDTH)}"]
    lines += [f"   superseded {_describe_version(one)}" for one in hit.superseded_by]
    lines += [f"   was {_describe_version(one)}" for one in hit.supersedes]
    if explain and hit.why:
        lines.append(f"   why: {hit.why}")
    for source in hit.sources or ():
        similarity = "" if source.similarity is None else f" (similarity {source.similarity:.2f})"
        lines.append(f"   - {source.kind} {source.id}{similarity}: {shorten(source.content or '', _SOURCE_WIDTH)}")
    return lines


def _describe_version(version: MemoryVersion) -> str:
    doubt = "" if version.status == "confirmed" else ", not confirmed"
    return f"({version.learned_at:%Y-%m-%d}{doubt}) {version.id}: {shorten(version.content, _SOURCE_WIDTH)}"
