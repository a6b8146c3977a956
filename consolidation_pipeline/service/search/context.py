"""Context of a task: what an agent should know before it starts, within a token budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from consolidation_pipeline import tracing
from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.core.search.context import (
    KINDS,
    PLAYBOOK,
    ContextPiece,
    ContextSelection,
    SelectedPiece,
    is_on_task,
    select_pieces,
)
from consolidation_pipeline.core.search.context_markdown import (
    format_contradiction,
    format_item,
    format_recommendation,
    is_told,
)
from consolidation_pipeline.core.search.results import ContextEntry, SearchHit, TaskContext
from consolidation_pipeline.core.text.token_estimate import estimate_tokens
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.search.hybrid_search import MAX_LIMIT, SearchQuery, count_uses, search_project
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.review_queue import count_review_items
from consolidation_pipeline.store.search.context import (
    SupportedEntry,
    count_categories,
    has_consolidated_memories,
    load_raw_sources,
    load_supported_entries,
)

DEFAULT_BUDGET = 2000

# A memory that has too few words of the task needs this share of the best hit's score. If it was found by its words
# alone, it needs a score of 0.9 instead: z-scores that add up to 2.2 (`rank_fusion.fuse_scores`).
_MIN_SCORE_SHARE, _MIN_KEYWORD_SCORE = 0.5, 0.9
# Tokens reserved for recommendations: this many, or this share of a small budget. Unused tokens stay unused.
_RECOMMENDATION_TOKENS, _RECOMMENDATION_SHARE = 250, 0.2
# Below this number of memories and entries, the project knows little about a task.
_FEW = 3


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
) -> TaskContext:
    """Return what a project knows about a task: playbook entries, principles, patterns, merged and raw memories.

    A sentence is left out if another one says all of it. A source of a memory in the context is added only if it has
    literals of its own or contradicts a sentence of the context.

    Args:
        token_budget: Maximum number of estimated tokens of the context as text, at least 1.
        scope: Key of a scope, such as a user id; memories of it and of no scope in particular. None = of all scopes.
        count_use: Count one use of each returned memory.

    Raises:
        NotFoundError: There is no such project.
        UsageError: The task is blank or too long, or the budget is below 1.
    """
    if token_budget < 1:
        raise UsageError(f"token_budget is {token_budget}; it must be 1 or more")
    if not task.strip():
        raise UsageError("the task is blank: describe it in a sentence")
    with tracing.span("context", {tracing.MEMORY_STORE_ID: slug}):
        context = _build(engine, slug, task, settings, token_budget, scope)
        sizes = {"memories": len(context.memories), "entries": len(context.playbook_entries), "tokens": context.tokens}
        tracing.set_attributes({f"consolidation.context.{name}": number for name, number in sizes.items()})
        if count_use:
            count_uses(engine, context.memories)
    return context


def _build(
    engine: Engine, slug: str, task: str, settings: Settings, token_budget: int, scope: str | None
) -> TaskContext:
    candidates = _find_candidates(engine, slug, task, settings, scope)
    reserved = min(_RECOMMENDATION_TOKENS, int(token_budget * _RECOMMENDATION_SHARE))
    selection = select_pieces(candidates.pieces, budget=token_budget - reserved)
    entries, memories = [], []
    for one in selection.selected:
        if one.piece.kind == PLAYBOOK:
            entry = candidates.entries[one.piece.id]
            support = (entry.priority, entry.confidence, len(entry.raw_ids))
            entries.append(ContextEntry(entry.id, one.text, entry.category, entry.tags, *support))
        else:
            memories.append(replace(candidates.hits[one.piece.id], content=one.text))
    levels = Counter(str(memory.level) for memory in memories)
    context = TaskContext(
        project=slug,
        task=task,
        memories=memories,
        playbook_entries=entries,
        abstraction_distribution={level: levels[level] for level in sorted({str(level) for level in LEVELS.values()})},
        contradictions=selection.contradictions,
        recommendations=[],
        tokens=0,
        token_budget=token_budget,
    )
    return _add_recommendations(context, _recommend(slug, candidates, selection))


def _add_recommendations(context: TaskContext, recommendations: Iterable[str]) -> TaskContext:
    """Add the recommendations that fit into the budget, and count the tokens."""
    document = to_document(context)
    fitting = []
    for recommendation in recommendations:
        longer = document + format_recommendation(recommendation)
        if estimate_tokens(longer) <= context.token_budget:
            document = longer
            fitting.append(recommendation)
    return replace(context, recommendations=fitting, tokens=estimate_tokens(document))


def to_document(context: TaskContext) -> str:
    """Return the context as a Markdown list, with an item for each entry, memory, contradiction and recommendation.

    An entry or memory that only contradicts another one is told there alone, with its date.
    """
    pieces: list[tuple[str, str | None, UUID, str]] = [
        (PLAYBOOK, entry.category, entry.id, entry.content) for entry in context.playbook_entries
    ]
    pieces += [(hit.kind, None, hit.id, hit.content) for hit in context.memories]
    items = (format_item(*piece) for piece in pieces if not is_told(*piece[2:], context.contradictions))
    contradictions = map(format_contradiction, context.contradictions)
    return "".join([*items, *contradictions, *map(format_recommendation, context.recommendations)])


def _find_candidates(engine: Engine, slug: str, task: str, settings: Settings, scope: str | None) -> _Candidates:
    with engine.connect() as connection:
        project = get_project(connection, slug)
    query = SearchQuery(task, limit=MAX_LIMIT, kinds=[kind for kind in KINDS if kind != PLAYBOOK], scope=scope)
    results = search_project(engine, project, query, settings=settings, count_use=False)
    best = max((hit.relevance_score for hit in results.results), default=0.0)
    hits = {hit.id: hit for hit in results.results if _is_relevant(hit, best, task)}
    with engine.connect() as connection:
        sources = load_raw_sources(connection, list(hits))
        raw_ids = {id_: sources.get(id_, frozenset((id_,))) for id_ in hits}
        entries = load_supported_entries(
            connection,
            project.id,
            list(frozenset().union(*raw_ids.values())),
            scope=scope,
            scope_option=effective_options(project, settings).scope,
        )
        categories = count_categories(connection, project.id)
        waiting = sum(count_review_items(connection, project.id).values())
        is_consolidated = has_consolidated_memories(connection, project.id)
    pieces = [
        ContextPiece(id_, hit.kind, hit.content, hit.relevance_score, raw_ids[id_], hit.learned_at)
        for id_, hit in hits.items()
    ]
    pieces += [_to_piece(entry, pieces) for entry in entries]
    return _Candidates(
        hits, {entry.id: entry for entry in entries}, pieces, categories, waiting, is_consolidated, results.note
    )


def _is_relevant(hit: SearchHit, best: float, task: str) -> bool:
    if is_on_task(task, hit.content):
        return True
    required = _MIN_SCORE_SHARE * best if hit.similarity is not None else _MIN_KEYWORD_SCORE
    return hit.relevance_score >= required


def _to_piece(entry: SupportedEntry, hits: Sequence[ContextPiece]) -> ContextPiece:
    """Return an entry as a piece with the score of the best hit that shares a raw memory with it."""
    score = max(hit.score for hit in hits if not hit.raw_ids.isdisjoint(entry.raw_ids))
    return ContextPiece(entry.id, PLAYBOOK, entry.content, score, entry.raw_ids, entry.learned_at, entry.category)


def _recommend(slug: str, candidates: _Candidates, selection: ContextSelection) -> Iterator[str]:
    """Yield next steps, the most important first."""
    selected = selection.selected
    count, more = len(selected), len(selection.left_out)
    if candidates.note:
        yield candidates.note
    if count + more < _FEW:
        yield f"{slug} knows little about this ({count + more} found): store what you learn as memories."
    if selection.contradictions:
        yield "Find out which side of a contradiction holds before you rely on either."
    yield from _recommend_categories(candidates.categories, selected)
    if more:
        yield f"{more} more are about the task but exceed the budget: ask for more tokens, or search."
    if count >= _FEW and not candidates.is_consolidated:
        yield f"{slug} has raw memories only: `consolidation run {slug}` merges them and finds patterns."
    if candidates.waiting:
        yield f"{candidates.waiting} wait for review: `consolidation review list {slug}`."


def _recommend_categories(categories: Mapping[str, int], selected: Collection[SelectedPiece]) -> Iterator[str]:
    """Recommend the playbook categories that the context quotes and that have further entries."""
    quoted = Counter(one.piece.category for one in selected if one.piece.category is not None)
    for name, count in quoted.most_common():
        if categories.get(name, 0) > count:
            yield f"Read the chapter {name} of the playbook: {categories[name]} entries, {count} of them here."
