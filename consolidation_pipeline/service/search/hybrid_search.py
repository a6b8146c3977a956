"""Hybrid search of a project: by meaning and by words, made one ranking; what is returned counts as used once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline import tracing
from consolidation_pipeline.core.knowledge.pattern_types import PATTERN_TYPES
from consolidation_pipeline.core.memories.memories import LEVELS, MEMORY_TYPES
from consolidation_pipeline.core.search.ranking import bm25
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.search.query_vectors import embed_query, explain_missing
from consolidation_pipeline.service.search.rank_fusion import CANDIDATES, FUSIONS, Legs, fuse
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline.store.search.retrievers import (
    Filters,
    Near,
    find_matching,
    find_nearest,
    load_words,
    open_snapshot,
)
from consolidation_pipeline.store.search.search_hits import Found, count_reuse, load_hits, load_sources
from consolidation_pipeline.store.search.vector_indexes import Index, find_indexes

MAX_QUERY_CHARS = 10_000
MAX_LIMIT = 100

# Memories that share most words with the query: so many are read closely (`core.ranking.bm25`).
_POOL = 400
_BY_WORDS = "found by words alone: {}"
# From this level on a memory is made of several and says less than each.
_ABSTRACT = 2


@dataclass(frozen=True)
class SearchQuery:
    """What is looked for. ``None`` or empty: no such condition.

    ``levels`` 0 (raw) to 3; ``kinds`` raw, merged, pattern, summary, principle, procedural; ``pattern_types`` success,
    failure, decision, workflow, gotcha: patterns and principles of these only; ``tags``: any of them;
    ``since``, ``until``: when it was learned, both ends included, UTC where no zone is given; ``min_similarity``: the
    cosine below which nothing is found by meaning; ``explain``: say of each hit why it was found.
    """

    text: str
    limit: int = 10
    levels: Sequence[int] | None = None
    types: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    tags: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    include_archived: bool = False
    include_sources: bool = False
    min_similarity: float = 0.30
    fusion: str = "default"
    explain: bool = False
    pattern_types: Sequence[str] | None = None


@dataclass(frozen=True)
class Hit:
    """A memory that was found. ``relevance_score`` orders the hits of one search and means nothing beyond it.

    ``similarity``: cosine, where it was found by meaning; ``keyword_rank``: place among those found by words, from 1;
    ``sources``: what it was made from, if asked for, with similarities; ``why``: if asked for, or if a leg is missing.
    """

    id: UUID
    kind: str
    level: int
    memory_type: str
    pattern_type: str | None
    content: str
    relevance_score: float
    similarity: float | None
    keyword_rank: int | None
    confidence: float | None
    tags: list[str]
    learned_at: datetime
    source_count: int
    sources: list[dict[str, Any]] | None
    why: str | None


@dataclass(frozen=True)
class SearchResults:
    """``total_found``: memories that either leg lists, of which each lists its best 200; ``note``: what was missing."""

    project: str
    query: str
    results: list[Hit]
    total_found: int
    search_time_ms: float
    note: str | None = None


def search(
    engine: Engine, slug: str, query: SearchQuery, *, settings: Settings, count_use: bool = True
) -> SearchResults:
    """The memories of a project that answer a query best, in the same order every time.

    A query embedded by a paid model is paid within the project's budgets; where that, or the model, gives out, words
    alone decide and ``why`` says so. Each hit counts one reuse unless ``count_use`` is off.

    Raises:
        NotFoundError: no such project. UsageError: the query is too long or a condition is not allowed.
    """
    with autocommit_connection(engine) as connection:
        project = get_project(connection, slug)
    return search_project(engine, project, query, settings=settings, count_use=count_use)


def search_project(
    engine: Engine, project: Project, query: SearchQuery, *, settings: Settings, count_use: bool = True
) -> SearchResults:
    """As ``search``, of a project that was loaded before."""
    with tracing.memory_span("search_memory", project.slug):
        results = _search(engine, project, query, settings=settings, count_use=count_use)
        tracing.set_attributes({tracing.MEMORY_RECORD_COUNT: len(results.results)})
    return results


def _search(
    engine: Engine, project: Project, query: SearchQuery, *, settings: Settings, count_use: bool
) -> SearchResults:
    began = time.perf_counter()
    filters = _check(query)
    wanted = _storable(query.text)
    options = effective_options(project, settings)
    vector, note = _embed(engine, project, options, wanted) if filters.kinds else (None, None)
    with open_snapshot(engine) as connection:
        legs = _search_legs(connection, project.id, query, filters=filters, text=wanted, vector=vector)
        if vector and not legs.similar and (missing := explain_missing(connection, project, vector[0])):
            note = _BY_WORDS.format(missing)
        ranked = fuse(legs, query.fusion)
        hits = _describe(connection, ranked[: query.limit], legs, query=query, note=note)
    if count_use:
        count_hits(engine, hits)
    spent = round((time.perf_counter() - began) * 1000, 3)
    return SearchResults(project.slug, query.text, hits, len(ranked), spent, note)


def _check(query: SearchQuery) -> Filters:
    """The conditions of a query. Raises UsageError for one that is not allowed."""
    if len(query.text) > MAX_QUERY_CHARS:
        raise UsageError(f"the query has {len(query.text):,} characters; {MAX_QUERY_CHARS:,} are allowed")
    if not 1 <= query.limit <= MAX_LIMIT:
        raise UsageError(f"limit is {query.limit}; it must be from 1 to {MAX_LIMIT}")
    if not 0 <= query.min_similarity <= 1:
        raise UsageError(f"min_similarity is {query.min_similarity}; it must be from 0 to 1")
    _check_each("level", query.levels, sorted(set(LEVELS.values())))
    _check_each("kind", query.kinds, LEVELS)
    _check_each("memory_type", query.types, MEMORY_TYPES)
    _check_each("pattern_type", query.pattern_types, PATTERN_TYPES)
    _check_each("fusion", [query.fusion], ("default", *FUSIONS))
    levels, kinds = query.levels or LEVELS.values(), query.kinds or LEVELS
    chosen = [kind for kind, level in LEVELS.items() if kind in kinds and level in levels]
    since, until = _aware(query.since), _aware(query.until)
    if since and until and since > until:
        raise UsageError(f"since ({since.isoformat()}) is after until ({until.isoformat()}): nothing lies between")
    return Filters(
        kinds=[kind for kind in chosen if kind != "raw" or not query.pattern_types],
        types=query.types,
        tags=query.tags,
        since=since,
        until=until,
        include_archived=query.include_archived,
        pattern_types=query.pattern_types,
    )


def _check_each(name: str, values: Sequence[Any] | None, legal: Any) -> None:
    for value in values or ():
        if value not in legal:
            raise UsageError(f"{value!r} is not a {name}: give one of {', '.join(map(str, legal))}")


def _aware(instant: datetime | None) -> datetime | None:
    return instant.replace(tzinfo=UTC) if instant and instant.tzinfo is None else instant


def _storable(text: str) -> str:
    """The query without what Postgres cannot hold: NUL and half surrogate pairs."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()


def _embed(
    engine: Engine, project: Project, options: ConsolidationOptions, text: str
) -> tuple[tuple[str, Vectors] | None, str | None]:
    """The model and the query's vector (d,); or None, and why there is none."""
    if not text:
        return None, "the query is blank"
    model, vector, missing = embed_query(engine, project, options, text)
    return (None, _BY_WORDS.format(missing)) if vector is None else ((model, vector), None)


def _search_legs(
    connection: Connection,
    project_id: UUID,
    query: SearchQuery,
    *,
    filters: Filters,
    text: str,
    vector: tuple[str, Vectors] | None,
) -> Legs:
    if not filters.kinds:
        return Legs({}, {})
    similar: list[Near] = []
    indexed: Mapping[str, Index] = {}
    if vector is not None:
        model, embedded = vector
        indexed = find_indexes(connection, project_id, model, len(embedded))
        similar = find_nearest(
            connection,
            project_id,
            filters,
            model=model,
            vector=embedded,
            floor=query.min_similarity,
            limit=CANDIDATES,
            indexed=indexed,
        )
    words = load_words(connection, project_id, text)
    matching = find_matching(connection, project_id, filters, words=words, pool=_POOL, indexed=bool(indexed))
    scores = bm25(matching.lengths, matching.counts).tolist()
    ordered = sorted(zip(matching.ids, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
    kinds = {near.id: near.kind for near in similar} | dict(zip(matching.ids, matching.kinds, strict=True))
    return Legs(
        {near.id: near.similarity for near in similar},
        dict(ordered[:CANDIDATES]),
        {id_ for id_, kind in kinds.items() if LEVELS[kind] >= _ABSTRACT},
    )


def _describe(
    connection: Connection,
    ranked: Sequence[tuple[str, float]],
    legs: Legs,
    *,
    query: SearchQuery,
    note: str | None,
) -> list[Hit]:
    ids = {id_: UUID(id_) for id_, _ in ranked}
    found = load_hits(connection, list(ids.values()))
    sources = load_sources(connection, list(ids.values())) if query.include_sources else {}
    places = {id_: rank for rank, id_ in enumerate(legs.matching, 1)}
    hits = []
    for id_, score in ranked:
        reasons = [legs.explain(id_)] if query.explain else []
        why = "; ".join([*reasons, note] if note else reasons) or None
        memory, made_from = found[ids[id_]], sources.get(ids[id_])
        hits.append(_hit(memory, score, legs.similar.get(id_), places.get(id_), made_from, why))
    return hits


def _hit(
    found: Found,
    score: float,
    similarity: float | None,
    keyword_rank: int | None,
    sources: list[dict[str, Any]] | None,
    why: str | None,
) -> Hit:
    return Hit(
        **vars(found),
        relevance_score=score,
        similarity=similarity,
        keyword_rank=keyword_rank,
        sources=sources,
        why=why,
    )


def count_hits(engine: Engine, hits: Sequence[Hit]) -> None:
    """Count one use of each memory that is handed out, as often as it was: hits may be those of several searches."""
    uses: Mapping[str, Counter[UUID]] = {
        "task_memories": Counter(hit.id for hit in hits if hit.level == 0),
        "consolidated_memories": Counter(hit.id for hit in hits if hit.level > 0),
    }
    for table, counted in uses.items():
        if counted:
            count_reuse(engine, table, counted)
