"""The context of a task: what an agent should know before it starts, within a budget of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from consolidation_pipeline import tracing
from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.core.search.context import (
    ENTRY,
    KINDS,
    Choice,
    Chosen,
    Piece,
    advice_of,
    choose_pieces,
    find_disputes,
    is_on_task,
    item_of,
    short_id,
)
from consolidation_pipeline.core.text.token_estimate import estimate_tokens
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.search.hybrid_search import MAX_LIMIT, Hit, SearchQuery, count_hits, search_project
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.review_queue import count_review_items
from consolidation_pipeline.store.search.context import (
    RestingEntry,
    count_categories,
    has_knowledge,
    load_leaves,
    load_resting_entries,
)

DEFAULT_BUDGET = 2000

# What has few words of the task must be this relevant, as a share of the best hit; if it was found by words alone it
# must stand out (`fusing.fuse`: standardised scores of 2.2 and more together).
_RELEVANT, _STANDS_OUT = 0.5, 0.9
# Recommendations may take so much, and this share of a small budget; what they leave is not filled up.
_ADVICE_TOKENS, _ADVICE_SHARE = 250, 0.2
# Below so many memories and entries little is known about a task.
_FEW = 3


@dataclass(frozen=True)
class ContextEntry:
    """A playbook entry on the task; ``evidence``: how many raw memories it rests on."""

    id: UUID
    content: str
    category: str
    tags: list[str]
    priority: int
    confidence: float | None
    evidence: int


@dataclass(frozen=True)
class Context:
    """What an agent should know before a task, each fact once, most abstract first.

    The ``content`` of each leaves out sentences that another memory or entry here says. ``abstraction_distribution``
    counts the memories by level, "0" (raw) to "3". ``tokens`` is what ``to_document`` takes by
    ``core.tokens.estimate_tokens``, at most ``token_budget``.
    """

    project: str
    task: str
    memories: list[Hit]
    playbook_entries: list[ContextEntry]
    abstraction_distribution: dict[str, int]
    recommendations: list[str]
    tokens: int
    token_budget: int


@dataclass(frozen=True)
class _Found:
    """What may be told, and what the recommendations follow from."""

    hits: Mapping[UUID, Hit]
    entries: Mapping[UUID, RestingEntry]
    pieces: Sequence[Piece]
    chapters: Mapping[str, int]
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
    count_use: bool = True,
) -> Context:
    """What a project knows about a task: playbook entries, principles, patterns, and merged and raw memories.

    Of what says the same only the most abstract is told, by lineage and by its words; the others come in for literals
    of their own. Each memory that is told counts one reuse unless ``count_use`` is off.

    Raises:
        NotFoundError: no such project. UsageError: the task is blank or too long, or the budget is not above 0.
    """
    if token_budget < 1:
        raise UsageError(f"token_budget is {token_budget}; it must be 1 or more")
    if not task.strip():
        raise UsageError("the task is blank: say in a sentence what is to be done")
    with tracing.span("context", {tracing.MEMORY_STORE_ID: slug}):
        context = _build(engine, slug, task, settings, token_budget)
        told = {"memories": len(context.memories), "entries": len(context.playbook_entries), "tokens": context.tokens}
        tracing.set_attributes({f"consolidation.context.{name}": number for name, number in told.items()})
        if count_use:
            count_hits(engine, context.memories)
    return context


def _build(engine: Engine, slug: str, task: str, settings: Settings, token_budget: int) -> Context:
    found = _find(engine, slug, task, settings)
    reserved = min(_ADVICE_TOKENS, int(token_budget * _ADVICE_SHARE))
    choice = choose_pieces(found.pieces, budget=token_budget - reserved)
    entries = [_entry(found.entries[one.piece.id], one) for one in choice.chosen if one.piece.kind == ENTRY]
    memories = [_shown(found.hits[one.piece.id], one) for one in choice.chosen if one.piece.kind != ENTRY]
    levels = Counter(str(memory.level) for memory in memories)
    context = Context(
        project=slug,
        task=task,
        memories=memories,
        playbook_entries=entries,
        abstraction_distribution={level: levels[level] for level in sorted({str(level) for level in LEVELS.values()})},
        recommendations=[],
        tokens=0,
        token_budget=token_budget,
    )
    return _advised(context, _recommend(slug, found, choice))


def _advised(context: Context, recommendations: Iterable[str]) -> Context:
    """The context with the recommendations that fit into its budget, and its tokens counted."""
    document = to_document(context)
    fitting = []
    for advice in recommendations:
        longer = document + advice_of(advice)
        if estimate_tokens(longer) <= context.token_budget:
            document = longer
            fitting.append(advice)
    return replace(context, recommendations=fitting, tokens=estimate_tokens(document))


def to_document(context: Context) -> str:
    """The context as text for an agent: a Markdown list, one item for each entry, memory and recommendation."""
    entries = (item_of(ENTRY, entry.category, entry.id, entry.content) for entry in context.playbook_entries)
    memories = (item_of(hit.kind, None, hit.id, hit.content) for hit in context.memories)
    return "".join([*entries, *memories, *map(advice_of, context.recommendations)])


def _find(engine: Engine, slug: str, task: str, settings: Settings) -> _Found:
    with engine.connect() as connection:
        project = get_project(connection, slug)
    query = SearchQuery(task, limit=MAX_LIMIT, kinds=[kind for kind in KINDS if kind != ENTRY])
    results = search_project(engine, project, query, settings=settings, count_use=False)
    best = max((hit.relevance_score for hit in results.results), default=0.0)
    hits = {hit.id: hit for hit in results.results if _is_relevant(hit, best, task)}
    with engine.connect() as connection:
        made_from = load_leaves(connection, list(hits))
        leaves = {id_: made_from.get(id_, frozenset((id_,))) for id_ in hits}
        entries = load_resting_entries(connection, project.id, list(frozenset().union(*leaves.values())))
        chapters = count_categories(connection, project.id)
        waiting = sum(count_review_items(connection, project.id).values())
        is_consolidated = has_knowledge(connection, project.id)
    pieces = [Piece(hit.id, hit.kind, hit.content, hit.relevance_score, leaves[hit.id]) for hit in hits.values()]
    pieces += [_piece(entry, pieces) for entry in entries]
    return _Found(
        hits, {entry.id: entry for entry in entries}, pieces, chapters, waiting, is_consolidated, results.note
    )


def _is_relevant(hit: Hit, best: float, task: str) -> bool:
    if is_on_task(task, hit.content):
        return True
    least = _RELEVANT * best if hit.similarity is not None else _STANDS_OUT
    return hit.relevance_score >= least


def _piece(entry: RestingEntry, hits: Sequence[Piece]) -> Piece:
    """An entry as relevant as the best hit that rests on some of the same memories."""
    score = max(hit.score for hit in hits if not hit.leaves.isdisjoint(entry.leaves))
    return Piece(entry.id, ENTRY, entry.content, score, entry.leaves, entry.category)


def _shown(hit: Hit, one: Chosen) -> Hit:
    return replace(hit, content=one.text)


def _entry(entry: RestingEntry, one: Chosen) -> ContextEntry:
    evidence = len(entry.leaves)
    return ContextEntry(entry.id, one.text, entry.category, entry.tags, entry.priority, entry.confidence, evidence)


def _recommend(slug: str, found: _Found, choice: Choice) -> Iterator[str]:
    """What to do beside reading the context, the most important first."""
    chosen = choice.chosen
    told, more = len(chosen), len(choice.left_out)
    if found.note:
        yield found.note
    if told + more < _FEW:
        yield f"{slug} knows little about this ({told + more} found): note what you learn as memories."
    for a, b, reason in find_disputes(chosen):
        yield f"{short_id(a)} and {short_id(b)} differ ({reason}): find out which holds before you rely on either."
    yield from _name_chapters(found.chapters, chosen)
    if more:
        yield f"{more} more fit the task, not the budget: ask for more tokens, or search."
    if told >= _FEW and not found.is_consolidated:
        yield f"{slug} holds raw memories alone: `consolidation run {slug}` merges them and finds patterns."
    if found.waiting:
        yield f"{found.waiting} wait for a person's word: `consolidation review list {slug}`."


def _name_chapters(chapters: Mapping[str, int], chosen: Collection[Chosen]) -> Iterator[str]:
    """Chapters of the playbook that the task touches and that have more to say than was told."""
    shown = Counter(one.piece.topic for one in chosen if one.piece.topic is not None)
    for name, count in shown.most_common():
        if chapters.get(name, 0) > count:
            yield f"Read the chapter {name} of the playbook: {chapters[name]} entries, {count} of them here."
