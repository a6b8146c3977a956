"""Hybrid search of a project: nearest vectors and keyword matches, fused into one ranking."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline import tracing
from consolidation_pipeline.core.calibration.model_thresholds import find_profile
from consolidation_pipeline.core.differences.language_detection import detect_configuration
from consolidation_pipeline.core.memories.memories import LEVELS, MEMORY_TYPES
from consolidation_pipeline.core.search.match import compute_match, compute_word_shares
from consolidation_pipeline.core.search.ranking import CANDIDATES_OF_HIT, MIN_CANDIDATES, MIN_INDEXED_CANDIDATES, bm25
from consolidation_pipeline.core.search.recall import MIN_SIMILARITY
from consolidation_pipeline.core.search.results import SearchHit, SearchResults
from consolidation_pipeline.core.search.versions import place_newer_first
from consolidation_pipeline.core.search.words import TextStatistics, WordFrequencies, add_frequencies, count_texts
from consolidation_pipeline.embed import is_local
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.search.query_vectors import embed_query, explain_missing_vectors
from consolidation_pipeline.service.search.rank_fusion import FUSIONS, RetrieverScores, add_nearer, fuse_scores
from consolidation_pipeline.service.search.versions import FoundVersions, find_versions
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.schema import PATTERN_TYPES
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.memories.pending_uses import add_uses
from consolidation_pipeline.store.memories.votes import load_usefulness
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline.store.search.keyword_matches import (
    KeywordMatches,
    QueryFacts,
    load_query_facts,
    read_keyword_matches,
)
from consolidation_pipeline.store.search.retrievers import (
    ABSTRACT_KINDS,
    SearchFilters,
    SemanticMatch,
    read_nearest,
    run_both,
    run_reads,
    snapshot,
)
from consolidation_pipeline.store.search.scope_indexes import ScopeIndex, find_scope_indexes
from consolidation_pipeline.store.search.search_hits import (
    RankedMemory,
    load_hits,
    load_members,
    load_similarities,
    load_staged_similarities,
)
from consolidation_pipeline.store.search.vector_indexes import (
    count_candidates,
    find_abstract_index,
    find_indexes,
    find_staged_indexes,
)
from consolidation_pipeline.store.search.word_indexes import find_word_indexes, load_frequencies

MAX_QUERY_CHARS = 10_000
MAX_LIMIT = 100

_BY_WORDS = "found by words alone: {}"


@dataclass(frozen=True)
class SearchQuery:
    """Query of a search with its filters; None or empty: no such filter.

    ``levels``: 0 (raw) to 3. ``kinds``: raw, merged, pattern, summary, principle, procedural. ``pattern_types``:
    success, failure, decision, workflow, gotcha; only patterns and principles of these types. ``tags``: at least one of
    them. ``since``, ``until``: inclusive bounds of ``learned_at``, UTC if without a zone. ``min_similarity``: lowest
    cosine of a memory that is found by its vector. ``min_match``: lowest ``match`` of a hit. ``explain``: add to each
    hit why it was found. ``scope``: key of a scope, such as a user id; memories of it and of no scope in particular.
    ``as_of``: what was known at that time; such a search counts no use.
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
    min_similarity: float = MIN_SIMILARITY
    min_match: float = 0.0
    fusion: str = "default"
    explain: bool = False
    pattern_types: Sequence[str] | None = None
    scope: str | None = None
    as_of: datetime | None = None


def search(
    engine: Engine, slug: str, query: SearchQuery, *, settings: Settings, count_use: bool = True
) -> SearchResults:
    """Return the memories of a project that answer a query best, in a stable order.

    If the embedding model or the budget for it is not available, only the keyword matches count, and ``why`` of each
    hit says so. ``count_use``: count one use of each hit.

    Raises:
        NotFoundError: There is no such project.
        UsageError: The query is too long or a filter has an illegal value.
    """
    with autocommit_connection(engine) as connection:
        project = get_project(connection, slug)
        if is_local(effective_options(project, settings).embedding_model):  # any other one takes connections of its own
            return _search(engine, project, query, settings=settings, count_use=count_use, connection=connection)
    return search_project(engine, project, query, settings=settings, count_use=count_use)


def search_project(
    engine: Engine, project: Project, query: SearchQuery, *, settings: Settings, count_use: bool = True
) -> SearchResults:
    """Search a project that is loaded already; see ``search``."""
    return _search(engine, project, query, settings=settings, count_use=count_use)


def _search(
    engine: Engine,
    project: Project,
    query: SearchQuery,
    *,
    settings: Settings,
    count_use: bool,
    connection: Connection | None = None,
) -> SearchResults:
    """Search a project on ``connection``, in autocommit; None = on one of the pool."""
    with tracing.memory_span("search_memory", project.slug):
        began = time.perf_counter()
        options = effective_options(project, settings)
        filters, text = _check_query(query, options), to_storable(query.text)
        vector, note = _embed(engine, project, options, text) if filters.kinds else (None, None)
        with autocommit_connection(engine) if connection is None else nullcontext(connection) as reading:
            with snapshot(reading):
                hits, total, note = _find_hits(reading, project, query, filters, text=text, vector=vector, note=note)
            if count_use and query.as_of is None:
                count_uses(reading, project.id, hits)
        spent = round((time.perf_counter() - began) * 1000, 3)
        tracing.set_attributes({tracing.MEMORY_RECORD_COUNT: len(hits)})
    return SearchResults(project.slug, query.text, hits, total, spent, note)


def search_within(
    connection: Connection,
    project: Project,
    query: SearchQuery,
    *,
    options: ConsolidationOptions,
    vector: tuple[str, Vectors] | None,
) -> list[SearchHit]:
    """Return what ``search`` would, within the transaction of ``connection``, which sees what it wrote itself.

    ``vector``: model and vector (d,) of the query; None = find by words alone.
    """
    text = to_storable(query.text)
    return _find_hits(connection, project, query, _check_query(query, options), text=text, vector=vector, note=None)[0]


def _find_hits(
    connection: Connection,
    project: Project,
    query: SearchQuery,
    filters: SearchFilters,
    *,
    text: str,
    vector: tuple[str, Vectors] | None,
    note: str | None,
) -> tuple[list[SearchHit], int, str | None]:
    """Return the hits, the number of memories that were ranked, and the note on the search."""
    least = MIN_INDEXED_CANDIDATES if find_word_indexes(connection, project.id) else MIN_CANDIDATES
    listed = max(least, CANDIDATES_OF_HIT * query.limit)
    facts = load_query_facts(connection, project.id, text, detect_configuration(text))
    scores = _retrieve(connection, project.id, query, filters=filters, facts=facts, vector=vector, listed=listed)
    if vector and not scores.semantic and (missing := explain_missing_vectors(connection, project, vector[0])):
        note = _BY_WORDS.format(missing)
    ranked = fuse_scores(scores, query.fusion)
    found = FoundVersions()
    if facts.has_versions:
        found = find_versions(connection, project.id, [id_ for id_, _ in ranked], as_of=query.as_of)
        ranked = place_newer_first(ranked, found.newer_of)
    # Without a threshold, only hits that are shown need their match.
    compared = ranked if query.min_match else ranked[: query.limit]
    staged_of = project.id if facts.has_staged else None
    matches = _match(connection, [id_ for id_, _ in compared], scores, vector, staged_of=staged_of)
    if query.min_match:
        ranked = [(id_, score) for id_, score in ranked if matches[id_] >= query.min_match]
    hits = _to_hits(connection, ranked[: query.limit], scores, matches, query=query, note=note)
    return [found.add_to(hit) for hit in hits], len(ranked), note


def _check_query(query: SearchQuery, options: ConsolidationOptions) -> SearchFilters:
    """Return the filters of a query. Raise UsageError for an illegal value."""
    if len(query.text) > MAX_QUERY_CHARS:
        raise UsageError(f"the query has {len(query.text):,} characters; {MAX_QUERY_CHARS:,} are allowed")
    if not 1 <= query.limit <= MAX_LIMIT:
        raise UsageError(f"limit is {query.limit}; it must be from 1 to {MAX_LIMIT}")
    if not 0 <= query.min_similarity <= 1:
        raise UsageError(f"min_similarity is {query.min_similarity}; it must be from 0 to 1")
    if not 0 <= query.min_match <= 1:
        raise UsageError(f"min_match is {query.min_match}; it must be from 0 to 1")
    _check_values("level", query.levels, sorted(set(LEVELS.values())))
    _check_values("kind", query.kinds, LEVELS)
    _check_values("memory_type", query.types, MEMORY_TYPES)
    _check_values("pattern_type", query.pattern_types, PATTERN_TYPES)
    _check_values("fusion", [query.fusion], ("default", *FUSIONS))
    levels, kinds = query.levels or LEVELS.values(), query.kinds or LEVELS
    chosen = [kind for kind, level in LEVELS.items() if kind in kinds and level in levels]
    since, until = _to_aware(query.since), _to_aware(query.until)
    if since and until and since > until:
        raise UsageError(f"since ({since.isoformat()}) is after until ({until.isoformat()})")
    return SearchFilters(
        kinds=[kind for kind in chosen if kind != "raw" or not query.pattern_types],
        types=query.types,
        tags=query.tags,
        since=since,
        until=until,
        include_archived=query.include_archived,
        pattern_types=query.pattern_types,
        scope=None if query.scope is None else to_storable(query.scope),
        scope_option=options.scope,
        as_of=query.as_of,
    )


def _check_values(name: str, values: Sequence[Any] | None, legal: Collection[Any]) -> None:
    for value in values or ():
        if value not in legal:
            raise UsageError(f"{value!r} is not a {name}: give one of {', '.join(map(str, legal))}")


def _to_aware(instant: datetime | None) -> datetime | None:
    return instant.replace(tzinfo=UTC) if instant and instant.tzinfo is None else instant


def to_storable(text: str) -> str:
    """Return a text without NUL and lone surrogates, which Postgres cannot store."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()


def _embed(
    engine: Engine, project: Project, options: ConsolidationOptions, text: str
) -> tuple[tuple[str, Vectors] | None, str | None]:
    """Return the model and the query's vector (d,), and None; or None, and the note that explains it."""
    if not text:
        return None, "the query is blank"
    model, vector, missing = embed_query(engine, project, options, text)
    return (None, _BY_WORDS.format(missing)) if vector is None else ((model, vector), None)


def _retrieve(
    connection: Connection,
    project_id: UUID,
    query: SearchQuery,
    *,
    filters: SearchFilters,
    facts: QueryFacts,
    vector: tuple[str, Vectors] | None,
    listed: int,
) -> RetrieverScores:
    """Return the scores of the best ``listed`` memories of each retriever."""
    if not filters.kinds:
        return RetrieverScores({}, {})
    word_indexes = find_word_indexes(connection, project_id)
    loaded = [load_frequencies(connection, index.name) for index in word_indexes.values()]
    counted = [one for one in loaded if one is not None]
    words = sorted({word for lexemes in facts.lexemes.values() for word in lexemes})
    frequencies = add_frequencies(counted, words) if counted else None
    semantic: list[SemanticMatch] = []
    reads = read_keyword_matches(
        project_id,
        filters,
        lexemes=facts.lexemes,
        indexes=word_indexes,
        frequencies=frequencies,
        least=query.limit,
        vector=vector,
    )
    if vector is None:
        matches = run_reads(connection, reads)
    else:
        scoped: Mapping[str, ScopeIndex] = {}
        if filters.scope is not None and filters.as_of is None and not facts.has_staged:
            scoped = find_scope_indexes(connection, project_id, filters.scope_option, filters.scope)
        indexed = {} if scoped else find_indexes(connection, project_id, vector[0], len(vector[1]))
        staged = find_staged_indexes(connection, project_id, vector[0], len(vector[1])) if facts.has_staged else None
        abstract_index = None if scoped else find_abstract_index(connection, project_id, vector[0], len(vector[1]))
        read = [*indexed.values(), *(staged or {}).values()]
        beside_words = bool(frequencies and words)
        candidates = 0
        if read or abstract_index:
            candidates = count_candidates(connection, read, nearest=listed, beside_words=beside_words)
        nearest = read_nearest(
            project_id,
            filters,
            model=vector[0],
            vector=vector[1],
            min_similarity=query.min_similarity,
            limit=listed,
            indexed=indexed,
            staged=staged,
            candidates=candidates,
            scoped=scoped,
            abstract_index=abstract_index,
        )
        semantic, matches = run_both(connection, nearest, reads)
    cosines = {
        id_: cosine
        for match in matches
        for id_, cosine in zip(match.ids, match.similarities, strict=True)
        if cosine is not None
    }
    if cosines:
        semantic = add_nearer(semantic, matches[0], query.min_similarity, listed)
    statistics = _count_texts(matches, words, frequencies)
    keyword = _score_matches(matches, statistics, listed)
    found = {match.id for match in semantic} | keyword.keys()
    kinds_of = {match.id: match.kind for match in semantic if match.kind in ABSTRACT_KINDS}
    for match in matches:
        if not ABSTRACT_KINDS.isdisjoint(match.kinds):
            both = zip(match.ids, match.kinds, strict=True)
            kinds_of |= {id_: kind for id_, kind in both if kind in ABSTRACT_KINDS}
    abstract = found & kinds_of.keys()
    patterns = [id_ for id_ in abstract if kinds_of[id_] == "pattern"]
    has_votes = facts.has_votes and query.as_of is None
    return RetrieverScores(
        {match.id: match.similarity for match in semantic},
        keyword,
        abstract,
        load_members(connection, patterns, found - abstract),
        load_usefulness(connection, found, query=vector) if has_votes else {},
        _share_words(matches, facts.lexemes, words, statistics),
        cosines,
    )


def _count_texts(
    matches: Sequence[KeywordMatches], words: Sequence[str], frequencies: WordFrequencies | None
) -> TextStatistics:
    """Return the statistics by which matches are scored.

    Words are counted in the first list alone, so that the second one does not change the scores of the first.
    """
    counted = next((found for found in matches if found.ids), matches[0])
    return count_texts(counted.lengths, counted.counts, words, frequencies)


def _score_matches(matches: Sequence[KeywordMatches], statistics: TextStatistics, listed: int) -> dict[str, float]:
    """Return the BM25 scores of the best ``listed`` of each list, best first."""
    best: list[tuple[float, str]] = []
    for found in matches:
        scores = bm25(found.lengths, found.counts, statistics)
        lowest = np.partition(scores, -listed)[-listed] if len(scores) > listed else 0.0
        near = np.flatnonzero(scores >= lowest)
        best += sorted(zip((-scores[near]).tolist(), (found.ids[at] for at in near.tolist()), strict=True))[:listed]
    return {id_: -score for score, id_ in sorted(best)}


def _share_words(
    matches: Sequence[KeywordMatches],
    lexemes: Mapping[str, Sequence[str]],
    words: Sequence[str],
    statistics: TextStatistics,
) -> dict[str, float] | None:
    """Return the share of the query's words that each memory has, by id; None if the query has none."""
    if not words:
        return None
    queries = [[words.index(word) for word in listed] for listed in lexemes.values()]
    counts = np.concatenate([found.counts for found in matches])
    shares = compute_word_shares(counts, queries, statistics)
    return dict(zip(chain.from_iterable(found.ids for found in matches), shares.tolist(), strict=True))


def _match(
    connection: Connection,
    ids: Sequence[str],
    scores: RetrieverScores,
    vector: tuple[str, Vectors] | None,
    *,
    staged_of: UUID | None,
) -> dict[str, float]:
    """Return how well each memory answers the query in itself, by id.

    A memory that was found by its words alone is compared by its vector too, if it has one. ``staged_of``: the project
    if it has staged vectors.
    """
    similarities = {**scores.cosines, **scores.semantic}
    if vector is not None:
        missing = [id_ for id_ in ids if id_ not in similarities]
        similarities |= load_similarities(connection, missing, model=vector[0], vector=vector[1])
        if staged_of is not None:
            missing = [id_ for id_ in missing if id_ not in similarities]
            found = load_staged_similarities(connection, staged_of, missing, model=vector[0], vector=vector[1])
            similarities |= found
    profile = find_profile(vector[0] if vector else "", centered=False)
    shares = scores.word_shares
    levels = {"unrelated": profile.unrelated, "same": profile.t_suggest}
    return {
        id_: compute_match(similarities.get(id_), None if shares is None else shares.get(id_, 0.0), **levels)
        for id_ in ids
    }


def _to_hits(
    connection: Connection,
    ranked: Sequence[tuple[str, float]],
    scores: RetrieverScores,
    matches: Mapping[str, float],
    *,
    query: SearchQuery,
    note: str | None,
) -> list[SearchHit]:
    keyword_ranks = {id_: rank for rank, id_ in enumerate(scores.keyword, 1)}
    memories = []
    for id_, score in ranked:
        reasons = [scores.explain(id_)] if query.explain else []
        why = "; ".join([*reasons, note] if note else reasons) or None
        similarity, keyword_rank = scores.semantic.get(id_), keyword_ranks.get(id_)
        memories.append(RankedMemory(UUID(id_), score, matches[id_], similarity, keyword_rank, why))
    return load_hits(connection, memories, include_sources=query.include_sources, as_of=query.as_of)


def count_uses(connection: Connection, project_id: UUID, hits: Sequence[SearchHit]) -> None:
    """Count one use of a memory for each hit. A memory that is in several hits gets several uses.

    Args:
        connection: In autocommit.
    """
    if hits:
        add_uses(connection, project_id, Counter(hit.id for hit in hits))
