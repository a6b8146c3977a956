"""Context of a task: what an agent should know before it starts, within a token budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import lru_cache
from itertools import chain
from uuid import UUID

from consolidation_pipeline import tracing
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.risky_text import RiskKind, find_risks
from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.core.search.context import ContextSelection, select_pieces
from consolidation_pipeline.core.search.context_changes import DatedText, link_changes
from consolidation_pipeline.core.search.context_days import are_of_one_day, find_day
from consolidation_pipeline.core.search.context_markdown import (
    DERIVED,
    DISPUTED,
    INSTRUCTIONS,
    KNOWN,
    NEXT_STEPS,
    RELATED,
    WHERE_TO_LOOK,
    format_chapter,
    format_contradiction,
    format_item,
    format_pointer,
    format_recommendation,
    label_memory,
    leave_out_told,
)
from consolidation_pipeline.core.search.context_pieces import PLAYBOOK, ContextPiece, SelectedPiece
from consolidation_pipeline.core.search.results import ContextEntry, Contradiction, SearchHit, TaskContext
from consolidation_pipeline.core.search.same_matter import link_other_values, list_linked
from consolidation_pipeline.core.search.task_words import is_on_task
from consolidation_pipeline.core.text.token_estimate import estimate_tokens
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.search.hybrid_search import MAX_LIMIT, SearchQuery, count_uses, search_project
from consolidation_pipeline.service.search.typed_scopes import tell_unknown_scope
from consolidation_pipeline.service.search.versions import drop_rejected, find_versions
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline.store.review.review_queue import count_review_items
from consolidation_pipeline.store.search.context import (
    SupportedEntry,
    count_categories,
    has_consolidated_memories,
    load_patterns,
    load_raw_sources,
    load_scopes,
    load_supported_entries,
)
from consolidation_pipeline.store.search.search_hits import RankedMemory, load_hits

DEFAULT_BUDGET = 2000

# A memory with too few words of the task is about it if it has this score: z-scores that add up to 2.2
# (`rank_fusion.fuse_scores`).
_CLEAR_SCORE = 0.9
# A memory that is not about the task, and answers it no better than this, has only chance in common with it. A longer
# one may answer it in a part, of which its match tells less. Measured: docs/quality.md.
_CHANCE, _CHANCE_OF_LONG, _LONG_CHARS = 0.05, 0.025, 200
# Below this number of memories and entries, the project knows little about a task, unless one mostly answers it.
_FEW = 3
_ANSWERS = 0.5


@dataclass(frozen=True)
class _Candidates:
    """Candidates for the context of a task, and the facts behind its recommendations.

    ``categories``: number of playbook entries by category. ``waiting``: number of items that wait for review.
    """

    hits: Mapping[UUID, SearchHit]
    entries: Mapping[UUID, SupportedEntry]
    pieces: Sequence[ContextPiece]
    categories: Mapping[str, int]
    waiting: int
    is_consolidated: bool
    note: str | None


def build_context(
    engine: Engine,
    slug: str,
    task: str,
    *,
    settings: Settings,
    token_budget: int = DEFAULT_BUDGET,
    scope: str | None = None,
    count_use: bool = True,
    as_of: datetime | None = None,
) -> TaskContext:
    """Return what a project knows about a task: instructions, what is known and disputed, and where to look for more.

    Instructions are playbook entries. What is known are the memories that a search finds, as many as the budget holds.
    What is told, is told once. A derived memory comes if it adds more per token than
    the memories that it displaces; else it points to those that found no room.

    Args:
        token_budget: Maximum number of estimated tokens of the context as text, at least 1.
        scope: Key of a scope, such as a user id; memories of it and of no scope in particular. None = of all scopes.
        count_use: Count one use of each returned memory.
        as_of: What was known at that time, which counts no use.

    Raises:
        NotFoundError: There is no such project.
        UsageError: The task is blank or too long, or the budget is below 1.
    """
    if token_budget < 1:
        raise UsageError(f"token_budget is {token_budget}; it must be 1 or more")
    if not task.strip():
        raise UsageError(f"the task is {task!r}: describe it in a sentence")
    with tracing.span("context", {tracing.MEMORY_STORE_ID: slug}):
        with autocommit_connection(engine) as connection:
            project = get_project(connection, slug)
        context = _build(engine, project, task, settings, token_budget, scope, as_of)
        sizes = {"memories": len(context.memories), "entries": len(context.playbook_entries), "tokens": context.tokens}
        tracing.set_attributes({f"consolidation.context.{name}": number for name, number in sizes.items()})
        if count_use and as_of is None:
            with autocommit_connection(engine) as connection:
                count_uses(connection, project.id, context.memories)
    return context


def _build(
    engine: Engine,
    project: Project,
    task: str,
    settings: Settings,
    token_budget: int,
    scope: str | None,
    as_of: datetime | None,
) -> TaskContext:
    candidates = _find_candidates(engine, project, task, settings, scope, as_of)
    selection = _select(candidates.pieces, token_budget)
    entries, memories, related, suspect = [], [], [], []
    for one in selection.selected:
        if one.piece.kind == PLAYBOOK:
            entry = candidates.entries[one.piece.id]
            support = (entry.priority, entry.confidence, len(entry.raw_ids))
            entries.append(ContextEntry(entry.id, one.text, entry.category, entry.tags, *support))
        else:
            memories.append(replace(candidates.hits[one.piece.id], content=one.text))
            related += [one.piece.id] if one.piece.is_related else []
            suspect += [one.piece.id] if one.piece.is_suspect else []
    levels = Counter(str(memory.level) for memory in memories)
    context = TaskContext(
        project=project.slug,
        task=task,
        playbook_entries=entries,
        memories=memories,
        related_ids=related,
        suspect_ids=suspect,
        contradictions=selection.contradictions,
        where_to_look=selection.pointers,
        recommendations=[],
        left_out=len(selection.left_out),
        abstraction_distribution={level: levels[level] for level in sorted({str(level) for level in LEVELS.values()})},
        tokens=0,
        token_budget=token_budget,
    )
    advice = _recommend(project.slug, candidates, selection)
    is_little = scope and len(selection.selected) < _FEW
    unknown = tell_unknown_scope(engine, project, scope) if is_little else None
    return _add_recommendations(context, chain([unknown] if unknown else [], advice))


def _select(pieces: Sequence[ContextPiece], budget: int) -> ContextSelection:
    """Select pieces; those that may be an injection are marked. Only what is told is searched for the signs of one."""
    while True:
        selection = select_pieces(pieces, budget=budget)
        told = (one.piece for one in selection.selected if one.piece.kind != PLAYBOOK and not one.piece.is_suspect)
        found = {piece.id for piece in told if _may_be_injection(piece.text)}
        if not found:
            return selection
        pieces = [replace(piece, is_suspect=piece.is_suspect or piece.id in found) for piece in pieces]


# The next context of a project tells many of the same texts.
@lru_cache(maxsize=1 << 12)
def _may_be_injection(text: str) -> bool:
    """Return True for a text that speaks to its reader as a prompt does. Other signs are in much good advice too."""
    return any(risk.kind is RiskKind.OVERRIDE for risk in find_risks(text))


def _add_recommendations(context: TaskContext, recommendations: Iterable[str]) -> TaskContext:
    """Add the recommendations that fit into the budget, and count the tokens."""
    shown, tokens = context, estimate_tokens(to_document(context))
    for recommendation in recommendations:
        longer = replace(shown, recommendations=[*shown.recommendations, recommendation])
        needed = estimate_tokens(to_document(longer))
        if needed <= context.token_budget:
            shown, tokens = longer, needed
    return replace(shown, tokens=tokens)


def to_document(context: TaskContext) -> str:
    """Return the context as Markdown: a chapter each of instructions, known, disputed, related, where to look, next.

    Each item of an entry or memory has its id. A passage that contradicts another one is told under disputed alone.
    """
    disputed, related, suspect = context.contradictions, frozenset(context.related_ids), frozenset(context.suspect_ids)
    instructions = [(one.id, one.category, one.content) for one in context.playbook_entries]
    days = _find_days(context.memories, link_other_values(_list_dated(context.memories)))
    memories = [
        (
            one.id,
            label_memory(
                one.kind,
                one.source_count,
                _list_newer(one),
                rival_ids=_list_newer(one, "candidate"),
                day=days.get(one.id),
                is_suspect=one.id in suspect,
            ),
            one.content,
        )
        for one in context.memories
    ]

    def list_items(pieces: Iterable[tuple[UUID, str, str]]) -> list[str]:
        told = ((id_, label, leave_out_told(id_, text, disputed)) for id_, label, text in pieces)
        return [format_item(*piece) for piece in told if piece[2]]

    chapters = {
        INSTRUCTIONS: list_items(instructions),
        KNOWN: list_items(piece for piece in memories if piece[0] not in related),
        DISPUTED: list(map(format_contradiction, disputed)),
        RELATED: list_items(piece for piece in memories if piece[0] in related),
        WHERE_TO_LOOK: list(map(format_pointer, context.where_to_look)),
        NEXT_STEPS: list(map(format_recommendation, context.recommendations)),
    }
    return "".join(format_chapter(title, items) for title, items in chapters.items())


def _find_days(hits: Collection[SearchHit], links: Mapping[UUID, Sequence[UUID]]) -> dict[UUID, date | None]:
    """Return the days to tell beside memories, by id. ``links``: later ones with another value, by the older one."""
    if are_of_one_day(hit.learned_at for hit in hits):
        return {}
    linked = list_linked(links) | {hit.id for hit in hits if hit.superseded_by or hit.supersedes}
    return {hit.id: find_day(hit.kind, hit.content, hit.learned_at, is_one_of_two=hit.id in linked) for hit in hits}


def _list_dated(hits: Iterable[SearchHit], scopes: Mapping[UUID, str] | None = None) -> list[DatedText]:
    """Return the texts of the raw and merged hits. ``scopes``: keys of their scopes."""
    return [
        DatedText(hit.id, hit.content, hit.learned_at, (scopes or {}).get(hit.id, ""))
        for hit in hits
        if hit.kind not in DERIVED and hit.learned_at is not None
    ]


def _find_candidates(
    engine: Engine, project: Project, task: str, settings: Settings, scope: str | None, as_of: datetime | None
) -> _Candidates:
    query = SearchQuery(task, limit=MAX_LIMIT, scope=scope, as_of=as_of)
    scope_option = effective_options(project, settings).scope
    results = search_project(engine, project, query, settings=settings, count_use=False)
    hits = {hit.id: hit for hit in results.results}
    with engine.connect() as connection:
        hits |= _load_newer(connection, project.id, hits, as_of)
        about = _find_about(hits, task)
        changes = _link_changes(hits, about)
        about.update(*changes.values())
        scopes = load_scopes(connection, list(hits), scope_option) if scope is None else {}
        links = link_other_values(_list_dated(hits.values(), scopes))
        others = drop_rejected(connection, project.id, links)
        about.update(*(newer for older, newer in others.items() if older in about))
        sources, patterns = load_raw_sources(connection, list(hits)), load_patterns(connection, list(hits))
        days = _find_days(hits.values(), links)
        pieces = [
            ContextPiece(
                hit.id,
                hit.kind,
                hit.content,
                hit.relevance_score,
                sources.get(hit.id, frozenset((hit.id,))),
                hit.learned_at,
                is_related=hit.id not in about,
                newer_ids=_list_newer(hit),
                rival_ids=_list_newer(hit, "candidate"),
                change_ids=tuple(dict.fromkeys((*changes.get(hit.id, ()), *others.get(hit.id, ())))),
                pattern_ids=patterns.get(hit.id, frozenset()),
                scope=scopes.get(hit.id, ""),
                match=hit.match,
                day=days.get(hit.id),
            )
            for hit in hits.values()
            if hit.id in about or not _is_chance(hit, task)
        ]
        sound = [piece for piece in pieces if piece.kind not in DERIVED and not piece.is_related]
        entries = load_supported_entries(
            connection,
            project.id,
            list(frozenset[UUID]().union(*(piece.raw_ids for piece in sound))),
            scope=scope,
            scope_option=scope_option,
            as_of=as_of,
        )
        # They are of all scopes: whoever asks for one is not told of the others.
        categories = count_categories(connection, project.id) if scope is None else {}
        waiting = sum(count_review_items(connection, project.id).values()) if scope is None else 0
        is_consolidated = has_consolidated_memories(connection, project.id)
    pieces += [_to_piece(entry, sound) for entry in entries]
    return _Candidates(
        hits, {entry.id: entry for entry in entries}, pieces, categories, waiting, is_consolidated, results.note
    )


def _load_newer(
    connection: Connection, project_id: UUID, hits: Mapping[UUID, SearchHit], as_of: datetime | None
) -> dict[UUID, SearchHit]:
    """Return what supersedes a hit, or may, and what supersedes that, as far as it was not found itself.

    Each has the score of the hit.
    """
    found: dict[UUID, SearchHit] = {}
    older = list(hits.values())
    while missing := {one.id: hit for hit in older for one in hit.superseded_by if one.id not in {*hits, *found}}:
        ranked = [RankedMemory(id_, hit.relevance_score, hit.match, None, None, None) for id_, hit in missing.items()]
        versions = find_versions(connection, project_id, list(map(str, missing)), as_of=as_of)
        older = [versions.add_to(hit) for hit in load_hits(connection, ranked, as_of=as_of)]
        if not older:
            break
        found |= {hit.id: hit for hit in older}
    return found


def _find_about(hits: Mapping[UUID, SearchHit], task: str) -> set[UUID]:
    """Return the hits that are about the task, and what supersedes these, or may: it may be in words of its own."""
    about = {id_ for id_, hit in hits.items() if _is_about(hit, task)}
    waiting = [*about]
    while waiting:
        newer = {one.id for one in hits[waiting.pop()].superseded_by} & hits.keys() - about
        about |= newer
        waiting += newer
    return about


def _link_changes(hits: Mapping[UUID, SearchHit], about: Collection[UUID]) -> dict[UUID, tuple[UUID, ...]]:
    """Return the newer hits that tell a change of what a hit about the task says, by its id."""
    texts = _list_dated(hits.values())
    return link_changes([one for one in texts if one.id in about], texts)


def _list_newer(hit: SearchHit, status: str = "confirmed") -> tuple[UUID, ...]:
    return tuple(one.id for one in hit.superseded_by if one.status == status)


def _is_about(hit: SearchHit, task: str) -> bool:
    return hit.relevance_score >= _CLEAR_SCORE or is_on_task(task, hit.content)


def _is_chance(hit: SearchHit, task: str) -> bool:
    """Return True if a hit has only chance in common with a task.

    Neither words nor vectors tell so of a hit in another language.
    """
    if hit.match > (_CHANCE_OF_LONG if len(hit.content) > _LONG_CHARS else _CHANCE):
        return False
    return len({detect_language(hit.content), detect_language(task)} - {None}) < 2


def _to_piece(entry: SupportedEntry, hits: Sequence[ContextPiece]) -> ContextPiece:
    """Return an entry as a piece with the score of the best hit that shares a raw memory with it."""
    score = max(hit.score for hit in hits if not hit.raw_ids.isdisjoint(entry.raw_ids))
    return ContextPiece(entry.id, PLAYBOOK, entry.content, score, entry.raw_ids, entry.learned_at, entry.category)


def _recommend(slug: str, candidates: _Candidates, selection: ContextSelection) -> Iterator[str]:
    """Yield next steps, the most important first."""
    selected = [one for one in selection.selected if not one.piece.is_related]
    count, more = len(selected), sum(not piece.is_related for piece in selection.left_out)
    if candidates.note:
        yield candidates.note
    if count + more < _FEW and not any(hit.match >= _ANSWERS for hit in candidates.hits.values()):
        yield f"{slug} knows little about this ({count + more} found): store what you learn as memories."
    settled = [_is_settled(one, candidates.hits) for one in selection.contradictions]
    if any(settled):
        yield "Where a newer memory is known to replace an older one, rely on the newest."
    if not all(settled):
        yield "Find out which side of a contradiction holds before you rely on either."
    yield from _recommend_categories(candidates.categories, selected)
    if more:
        yield f"{more} more exceed the budget: ask for more tokens, or search."
    if count >= _FEW and not candidates.is_consolidated:
        yield f"{slug} has raw memories only: `consolidation run {slug}` merges them and finds patterns."
    if candidates.waiting:
        yield f"{candidates.waiting} wait for review: `consolidation review list {slug}`."


def _is_settled(contradiction: Contradiction, hits: Mapping[UUID, SearchHit]) -> bool:
    """Return True if each side but the newest is a memory that another side is confirmed to replace."""
    ids = {side.id for side in contradiction.sides}
    older = [hits.get(side.id) for side in contradiction.sides[1:]]
    return all(hit is not None and not ids.isdisjoint(_list_newer(hit)) for hit in older)


def _recommend_categories(categories: Mapping[str, int], selected: Collection[SelectedPiece]) -> Iterator[str]:
    """Recommend the playbook categories that the context quotes and that have further entries."""
    quoted = Counter(one.piece.category for one in selected if one.piece.category is not None)
    for name, count in quoted.most_common():
        if categories.get(name, 0) > count:
            yield f"Read the chapter {name} of the playbook: {categories[name]} entries, {count} of them here."
