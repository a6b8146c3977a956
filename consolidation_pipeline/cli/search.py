"""``consolidation search``: what a project knows about a question."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.output import JsonFlag, make_console, print_json, print_note, shorten
from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.service.search.hybrid_search import Hit, SearchResults

_TEXT_WIDTH = 400
_SOURCE_WIDTH = 100


class Fusion(StrEnum):
    """How the two rankings become one."""

    DEFAULT = "default"
    RRF = "rrf"
    ZSCORE = "zscore"


def search(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is looked for, in any words.")],
    limit: Annotated[int, typer.Option(min=1, max=100, help="At most so many.")] = 10,
    level: Annotated[list[int] | None, typer.Option(help="Only this level, 0 (raw) to 3; may be repeated.")] = None,
    type: Annotated[list[str] | None, typer.Option(help="Only this memory type, such as decision.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind: raw, merged, pattern, ...")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag, or another one given.")] = None,
    since: Annotated[str | None, typer.Option(help="Learned then or later: a day or an ISO 8601 time, UTC.")] = None,
    until: Annotated[str | None, typer.Option(help="Learned then or earlier; a day counts to its end.")] = None,
    include_archived: Annotated[bool, typer.Option("--include-archived", help="Archived memories too.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Show what each was made from.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each was found.")] = False,
    fusion: Annotated[Fusion, typer.Option(help="How meaning and words are weighed.")] = Fusion.DEFAULT,
    as_json: JsonFlag = False,
) -> None:
    """Search a project by meaning and by words.

    What is shown counts as used, which keeps memories from fading.
    """
    from consolidation_pipeline.service.search.hybrid_search import SearchQuery
    from consolidation_pipeline.service.search.hybrid_search import search as search_project

    asked = SearchQuery(
        query,
        limit=limit,
        levels=level,
        types=type,
        kinds=kind,
        tags=tag,
        since=_time("--since", since),
        until=_time("--until", until, to_its_end=True),
        include_archived=include_archived,
        include_sources=sources,
        fusion=fusion.value,
        explain=explain,
    )
    engine, settings = open_store()
    found = search_project(engine, project, asked, settings=settings)
    if as_json:
        print_json({**vars(found), "results": [vars(hit) for hit in found.results]})
    else:
        _print_results(found, explain=explain)


def _time(name: str, given: str | None, *, to_its_end: bool = False) -> datetime | None:
    """An option's time; of a day alone its beginning, or its last microsecond. Raises UsageError."""
    if given is None:
        return None
    try:
        instant = datetime.fromisoformat(given)
    except ValueError:
        raise UsageError(f"{name} is {given!r}: give a day such as 2026-01-31, or an ISO 8601 time") from None
    is_day = len(given) <= len("2026-01-31")
    return instant + timedelta(days=1, microseconds=-1) if to_its_end and is_day else instant


def _print_results(found: SearchResults, *, explain: bool) -> None:
    if found.note:
        print_note(found.note)
    if not found.results:
        print(f"{found.project} has nothing that fits")
        return
    for place, hit in enumerate(found.results, 1):
        make_console().print("\n".join(_lines(place, hit, explain=explain)), soft_wrap=True)
    shown = len(found.results)
    print(f"{shown} of {found.total_found} found in {found.search_time_ms:.0f} ms")


def _lines(place: int, hit: Hit, *, explain: bool) -> list[str]:
    told = [hit.kind, hit.memory_type, f"{hit.learned_at:%Y-%m-%d}"]
    told += [f"similarity {hit.similarity:.2f}"] if hit.similarity is not None else []
    told += [f"number {hit.keyword_rank} by words"] if hit.keyword_rank is not None else []
    told += [f"{hit.source_count} memories"] if hit.source_count else []
    lines = [f"{place}. {hit.id}  ({', '.join(told)})", f"   {shorten(hit.content, _TEXT_WIDTH)}"]
    if explain and hit.why:
        lines.append(f"   why: {hit.why}")
    for source in hit.sources or ():
        alike = "" if source["similarity"] is None else f" (similarity {source['similarity']:.2f})"
        lines.append(f"   - {source['kind']} {source['id']}{alike}: {shorten(source['content'] or '', _SOURCE_WIDTH)}")
    return lines


COMMANDS = (search,)
