"""Hybrid search: vectors and keywords, filters, order, use counts and concurrent runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from consolidation_pipeline.core.search.results import SearchHit, SearchResults
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.search.hybrid_search import MAX_QUERY_CHARS, SearchQuery, search
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.search import index_upkeep
from consolidation_pipeline.store.search.vector_indexes import list_complete_indexes
from consolidation_pipeline_tests.service.corpus import LESSONS, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline

CAR = "The car would not start this morning because the battery was empty."
TIMEOUT = "Gateway closes the connection with ERR_7731 when the upload is idle."
INVOICE = "Invoices are rounded per line and not per total."
TEXTS = {"car": CAR, "timeout": TIMEOUT, "invoice": INVOICE}


def add(pipeline: Pipeline, texts: dict[str, str], slug: str = SLUG, **fields: Any) -> None:
    """Add memories with vectors, without consolidation."""
    pipeline.add([{"id": key, "content": content, **fields} for key, content in texts.items()], slug)
    embed(pipeline, slug)


def embed(pipeline: Pipeline, slug: str = SLUG) -> None:
    with pipeline.open(slug, planned=()) as run:
        embed_memories(run)


def find(pipeline: Pipeline, query: str, slug: str = SLUG, *, count_use: bool = False, **how: Any) -> SearchResults:
    return search(pipeline.engine, slug, SearchQuery(query, **how), settings=pipeline.settings, count_use=count_use)


def contents(found: SearchResults) -> list[str]:
    return [hit.content for hit in found.results]


def ids_and_scores(hits: Sequence[SearchHit]) -> list[tuple[UUID, float]]:
    return [(hit.id, hit.relevance_score) for hit in hits]


def test_search_finds_paraphrase_by_vector(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    first = find(pipeline, "automobile engine ignition").results[0]
    assert first.content == CAR
    assert first.keyword_rank is None
    assert first.similarity is not None
    assert first.similarity >= 0.30


@pytest.mark.parametrize("fusion", ["rrf", "zscore", "default"])
def test_search_finds_identifier_by_keyword(pipeline: Pipeline, fusion: str) -> None:
    add(pipeline, TEXTS | {f"more{n}": f"Gateway number {n} of the upload service is idle." for n in range(20)})
    first = find(pipeline, "what was ERR_7731 about?", fusion=fusion).results[0]
    assert (first.content, first.keyword_rank) == (TIMEOUT, 1)


def test_search_matches_single_keyword(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    found = find(pipeline, "how are invoices of our beloved customers printed on paper", min_similarity=1.0)
    assert contents(found) == [INVOICE]


def test_search_stems_in_language_of_memory(pipeline: Pipeline) -> None:
    german = "Die Rechnungen wurden wegen der Häuser doppelt verschickt."
    add(pipeline, TEXTS | {"de": german})
    assert contents(find(pipeline, "Rechnung Haus", min_similarity=1.0)) == [german]
    pipeline.write("UPDATE {s}.task_memories SET language = 'english' WHERE external_id = 'de'")
    assert contents(find(pipeline, "Haus", min_similarity=1.0)) == []
    assert contents(find(pipeline, "invoice", min_similarity=1.0)) == [INVOICE]


def test_search_finds_words_in_texts_without_blanks(pipeline: Pipeline) -> None:
    cache, pool = "使用Redis缓存会话，三十分钟后过期。", "連接池が空になると、エラーE1042が発生する。"
    add(pipeline, {"cache": cache, "pool": pool, "invoice": "发票按行舍入，不按总额。"})
    for query in ("Redis", "缓存", "会话 过期", "缓存什么时候过期？"):
        assert contents(find(pipeline, query, min_similarity=1.0)) == [cache]
    for query in ("E1042", "エラー", "連接池"):
        assert contents(find(pipeline, query, min_similarity=1.0)) == [pool]
    assert contents(find(pipeline, "缓冲 Red", min_similarity=1.0)) == [cache]  # by one ideograph
    assert contents(find(pipeline, "エクラ ニ Red", min_similarity=1.0)) == []


def test_search_without_keywords_finds_nothing_by_text(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    for query in ("the of and", "?!", "", "\0"):
        assert find(pipeline, query, min_similarity=1.0).results == []


def test_search_accepts_unusual_queries(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    operators = ("'", "''", "&|!:*", "a & | ! b", "\\", "car\\", "it's <-> (", ":*", "C:\\Temp\\'a'.txt")
    bindings = ("%s %(x)s :project", "SELECT 1; --", "{car}")
    scripts = ("\0car\0", "🚗🔋", "\ud83d", "машина не заводится", "電池", "\u202e\u200b", "x" * MAX_QUERY_CHARS)
    for query in (*operators, *bindings, *scripts):
        assert find(pipeline, query, explain=True).total_found >= 0
    assert CAR in contents(find(pipeline, "'car\\", min_similarity=1.0))


def test_search_refuses_invalid_filters(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    day = datetime(2026, 1, 2, tzinfo=UTC)
    for how, message in (
        ({"query": "x" * 100_000}, "100,000 characters; 10,000 are allowed"),
        ({"limit": 0}, "from 1 to 100"),
        ({"limit": 101}, "from 1 to 100"),
        ({"levels": [4]}, "4 is not a level: give one of 0, 1, 2, 3"),
        ({"kinds": ["rock"]}, "raw, merged, pattern"),
        ({"types": ["rock"]}, "error_fix"),
        ({"fusion": "sum"}, "default, rrf, zscore"),
        ({"min_similarity": 1.5}, "from 0 to 1"),
        ({"min_similarity": float("nan")}, "from 0 to 1"),
        ({"since": day, "until": datetime(2026, 1, 1)}, "is after until"),
    ):
        with pytest.raises(UsageError, match=message):
            find(pipeline, **{"query": "car", **how})  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="nowhere"):
        find(pipeline, "car", "nowhere")


def test_search_filter_does_not_starve_results(pipeline: Pipeline) -> None:
    near = {f"n{at}": f"The car would not start on day {at} as the battery was empty." for at in range(300)}
    add(pipeline, near, memory_type="error_fix", tags=["car"], created_at="2026-01-05")
    far = "A battery was recycled."
    add(pipeline, {"far": far}, memory_type="decision", tags=["waste", "green"], created_at="2025-03-01T12:00:00Z")
    for how in (
        {"types": ["decision"]},
        {"tags": ["green", "blue"]},
        {"until": datetime(2025, 3, 1, 12)},
        {"since": datetime(2025, 3, 1, 12, tzinfo=UTC), "until": datetime(2025, 4, 1, tzinfo=UTC)},
    ):
        found = find(pipeline, "the car's empty battery", **how)
        assert (contents(found), found.total_found) == ([far], 1)
    assert find(pipeline, "battery", kinds=["merged"]).results == []
    assert find(pipeline, "battery", levels=[0], kinds=["merged"]).results == []
    assert len(find(pipeline, "battery", levels=[0], limit=7).results) == 7


def test_search_returns_merged_memory_not_sources(pipeline: Pipeline) -> None:
    pipeline.consolidate(reworded_notes())
    found = find(pipeline, "restart the payments worker after rotating the webhook secret", include_sources=True)
    merged = {hit.id for hit in found.results if hit.kind == "merged"}
    assert found.results[0].id in merged
    hidden = {row[0] for row in pipeline.rows("SELECT id FROM {s}.task_memories WHERE is_consolidated")}
    assert hidden
    assert not hidden & {hit.id for hit in found.results}
    first = found.results[0]
    assert first.sources is not None
    assert len(first.sources) == first.source_count > 1
    assert {source.id for source in first.sources} <= hidden
    assert all(0 < source.similarity <= 1.00001 and source.content for source in first.sources)
    assert (first.level, first.confidence is not None) == (1, True)
    assert find(pipeline, "payments worker").results[0].sources is None


def test_search_filters_by_level_and_kind(pipeline: Pipeline) -> None:
    pipeline.consolidate(reworded_notes())
    levels = {hit.level for hit in find(pipeline, "payments worker", limit=100, min_similarity=0).results}
    assert 1 in levels
    only = find(pipeline, "payments worker", limit=100, min_similarity=0, levels=[1]).results
    assert {(hit.level, hit.kind) for hit in only} == {(1, "merged")}


def test_search_excludes_archived_by_default(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    (id_,) = (hit.id for hit in find(pipeline, "ERR_7731").results[:1])
    archive_manually(pipeline.engine, [id_], reason="test", changed_by="tester")
    assert TIMEOUT not in contents(find(pipeline, "ERR_7731"))
    assert contents(find(pipeline, "ERR_7731", include_archived=True))[0] == TIMEOUT


def test_search_excludes_other_projects(pipeline: Pipeline) -> None:
    add(pipeline, {"mine": INVOICE})
    add(pipeline, TEXTS, "other")
    found = find(pipeline, f"{CAR} {TIMEOUT} {INVOICE}", min_similarity=0, include_archived=True)
    assert contents(found) == [INVOICE]
    assert contents(find(pipeline, "ERR_7731", "other"))[0] == TIMEOUT


def test_search_order_is_deterministic(pipeline: Pipeline) -> None:
    add(pipeline, {f"same{at}": CAR for at in range(30)} | TEXTS)
    for fusion in ("rrf", "zscore"):
        first = find(pipeline, "car battery", limit=40, fusion=fusion).results
        assert ids_and_scores(first) == ids_and_scores(find(pipeline, "car battery", limit=40, fusion=fusion).results)
        scores = [hit.relevance_score for hit in first]
        assert scores == sorted(scores, reverse=True)
        same = [hit.id for hit in first if hit.content == CAR]
        assert same == sorted(same)


def test_search_counts_one_reuse_per_hit(pipeline: Pipeline) -> None:
    pipeline.consolidate(reworded_notes())
    counts = (
        "SELECT id, reused_count, last_accessed_at, version FROM {s}.task_memories UNION ALL "
        "SELECT id, reuse_count, last_accessed_at, version FROM {s}.consolidated_memories"
    )
    before = {row[0]: row[1:] for row in pipeline.rows(counts)}
    find(pipeline, "payments worker")
    pipeline.fold_uses()
    assert {row[0]: row[1:] for row in pipeline.rows(counts)} == before
    returned = {hit.id for hit in find(pipeline, "payments worker", limit=5, count_use=True).results}
    pipeline.fold_uses()
    after = {row[0]: row[1:] for row in pipeline.rows(counts)}
    assert {id_ for id_ in after if after[id_] != before[id_]} == returned
    for id_ in returned:
        assert after[id_][0] == before[id_][0] + 1
        assert after[id_][1] is not None
        assert after[id_][2] == before[id_][2]


def test_concurrent_searches_are_all_counted(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    with ThreadPoolExecutor(6) as pool:
        list(
            pool.map(
                lambda _: find(pipeline, "car battery invoice ERR_7731", min_similarity=0, count_use=True), "x" * 24
            )
        )
    pipeline.fold_uses()
    assert pipeline.rows("SELECT DISTINCT reused_count FROM {s}.task_memories") == [(24,)]


def test_search_does_not_wait_for_locked_rows(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    with pipeline.engine.connect() as other:
        other.execute(text(f"SELECT 1 FROM {SCHEMA}.task_memories WHERE external_id = 'car' FOR UPDATE"))
        found = find(pipeline, "car invoice", min_similarity=0, count_use=True)
    assert {CAR, INVOICE} <= set(contents(found))
    pipeline.fold_uses()
    counted = dict(pipeline.rows("SELECT external_id, reused_count FROM {s}.task_memories"))
    assert (counted["car"], counted["invoice"]) == (1, 1)


def test_search_without_vectors_uses_keywords(pipeline: Pipeline) -> None:
    pipeline.add([{"id": "a", "content": TIMEOUT}])
    found = find(pipeline, "ERR_7731")
    assert contents(found) == [TIMEOUT]
    assert "found by words alone: no memory has a vector" in str(found.results[0].why)
    assert found.note == found.results[0].why


def test_search_without_budget_uses_keywords(pipeline: Pipeline) -> None:
    pipeline.configure_new(embedding_model="openai/text-embedding-3-small", budget_usd_per_run=0)
    pipeline.add([{"id": "a", "content": TIMEOUT}])
    pipeline.write(
        "UPDATE {s}.task_memories SET embedding = '[1,0,0]', embedding_model = 'openai/text-embedding-3-small', "
        "embedding_dim = 3"
    )
    (hit,) = find(pipeline, "ERR_7731").results
    assert (hit.content, hit.similarity, hit.keyword_rank) == (TIMEOUT, None, 1)
    assert "found by words alone: embedding was not sent" in str(hit.why)


def test_search_explanation_names_ranks_and_similarity(pipeline: Pipeline) -> None:
    add(pipeline, TEXTS)
    assert find(pipeline, "car battery").results[0].why is None
    why = str(find(pipeline, "car battery", explain=True).results[0].why)
    assert why.startswith("number 1 of ")
    assert "by meaning (similarity 0." in why
    assert "number 1 of 1 by words" in why


def test_run_indexes_vectors_of_large_project(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    add(pipeline, TEXTS)
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 3)
    before = find(pipeline, "car battery")
    pipeline.run()
    names = pipeline.rows("SELECT indexname FROM pg_indexes WHERE indexdef LIKE '%halfvec_cosine_ops%'")
    assert len(names) == 1
    assert ids_and_scores(find(pipeline, "car battery", levels=[0]).results) == ids_and_scores(before.results)


def test_search_use_does_not_block_rollback(pipeline: Pipeline) -> None:
    done = pipeline.consolidate(reworded_notes())
    find(pipeline, "payments worker", count_use=True)
    undone = pipeline.roll_back(done.job_id)
    assert undone.memories_deleted > 0
    assert {hit.kind for hit in find(pipeline, "payments worker").results} == {"raw"}


def test_facts_stay_visible_during_run_and_rollback(pipeline: Pipeline) -> None:
    pipeline.add(reworded_notes())
    embed(pipeline)
    ended, missed, seen = Event(), [], Counter[str]()

    def read() -> None:
        while not ended.is_set():
            for lesson in LESSONS:
                found = find(pipeline, lesson, levels=[0, 1], count_use=True).results
                seen.update(hit.kind for hit in found)
                missed.extend([] if any(lesson[:40] in hit.content for hit in found) else [lesson])

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            done = pipeline.run()
            pipeline.roll_back(done.job_id)
        finally:
            ended.set()
        reader.result()
    assert done.merging.absorbed > 0
    assert set(seen) == {"raw", "merged"}
    assert missed == []


def find_in_scope(pipeline: Pipeline, scope: str | None) -> list[str]:
    """Return the contents that a search by meaning and one by words find in a scope."""
    by_words = contents(find(pipeline, "staging database", scope=scope, limit=50))
    by_meaning = contents(find(pipeline, "where does the test environment store data", scope=scope, min_similarity=0))
    assert set(by_words) <= set(by_meaning)
    return sorted(by_meaning)


@pytest.mark.parametrize("option", ["user_id", "agent_id,metadata.team"])
def test_search_in_scope_finds_it_and_the_empty_scope(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    users = {"ada": "The staging database of ada is small.", "bob": "The staging database of bob is large."}
    pipeline.configure_new(scope=option)
    for user, content in users.items():
        team = {"metadata": {"team": f"{user}/team"}, "agent_id": user}
        add(pipeline, {user: content, f"{user} again": content}, user_id=user, **team)
    add(pipeline, {"shared": "The staging database is in Frankfurt."})
    pipeline.run()
    kinds = pipeline.rows("SELECT kind, count(*) FROM {s}.consolidated_memories WHERE kind = 'merged' GROUP BY 1")
    assert [tuple(row) for row in kinds] == [("merged", 2)]
    shared = "The staging database is in Frankfurt."
    for user, content in users.items():
        scope = user if option == "user_id" else f"{user}/{user}~1team"
        assert find_in_scope(pipeline, scope) == sorted([content, shared])
    assert find_in_scope(pipeline, "nobody") == find_in_scope(pipeline, "") == [shared]
    assert find_in_scope(pipeline, None) == sorted([*users.values(), shared])
    # By the indexes of a large project, the same is found.
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 1)
    pipeline.run()
    list_complete_indexes.cache_clear()
    for user, content in users.items():
        scope = user if option == "user_id" else f"{user}/{user}~1team"
        assert find_in_scope(pipeline, scope) == sorted([content, shared])
    assert find_in_scope(pipeline, "nobody") == [shared]
    names = pipeline.rows("SELECT indexname FROM pg_indexes WHERE indexname LIKE '%_scope_%'")
    assert names


def test_scope_has_no_effect_without_walls(pipeline: Pipeline) -> None:
    pipeline.configure_new(scope="project")
    add(pipeline, {"a": CAR}, user_id="ada")
    assert contents(find(pipeline, "car battery", scope="bob")) == [CAR]


def test_search_in_scope_hides_what_crosses_it_before_a_run(pipeline: Pipeline) -> None:
    pipeline.configure_new(scope="project")
    for user in ("ada", "bob"):
        add(pipeline, {user: CAR}, user_id=user)
    pipeline.run()
    assert len(find(pipeline, "car battery").results) == 1
    pipeline.configure()
    assert contents(find(pipeline, "car battery", scope="ada")) == []
    pipeline.run()
    assert contents(find(pipeline, "car battery", scope="ada")) == [CAR]
