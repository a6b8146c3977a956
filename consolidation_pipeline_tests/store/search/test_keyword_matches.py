"""Keyword matches: lexemes, counts of words, and the rows that rare words lead to in a large project."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.core.search.words import WordFrequencies
from consolidation_pipeline.store.admin.erasure import renew_statistics
from consolidation_pipeline.store.database.engine import Engine, connect_engine, with_driver
from consolidation_pipeline.store.database.raw_connections import autocommit_connection, fetch_rows
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.search import index_upkeep
from consolidation_pipeline.store.search.index_upkeep import build_indexes
from consolidation_pipeline.store.search.keyword_matches import (
    KeywordMatches,
    build_group_query,
    build_keyword_query,
    load_query_facts,
    read_keyword_matches,
)
from consolidation_pipeline.store.search.retrievers import SearchFilters, run_reads
from consolidation_pipeline.store.search.search_hits import load_similarities
from consolidation_pipeline.store.search.word_indexes import find_word_indexes, load_frequencies
from consolidation_pipeline_tests.database_pool import temporary_database
from consolidation_pipeline_tests.store.sample_rows import add_project, unit_vector
from consolidation_pipeline_tests.store.search.conftest import DIMENSION, MODEL, RAW, ROWS


@pytest.fixture(scope="module")
def large_project(server: str, large_project: tuple[str, Project]) -> Iterator[tuple[str, Project]]:
    """Name of a database with the large project and its indexes, and the project."""
    template, project = large_project
    with temporary_database(server, template) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_upkeep, "MIN_INDEXED_ROWS", ROWS)
        engine = connect_engine(with_driver(url, "psycopg"))
        build_indexes(engine, project.id, MODEL, DIMENSION)
        engine.dispose()  # Postgres copies only databases without connections
        yield str(engine.url.database), project


def test_lexemes_follow_languages_of_project(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.task_memories SET language = 'german' WHERE external_id = '7'"))
        query = "The houses, die Häuser"
        for own, english, german in (
            ("english", ["die", "hous", "häuser"], ["haus", "hous"]),
            ("german", ["hous", "häuser"], ["haus", "hous", "the"]),
            ("simple", ["die", "hous", "häuser"], ["haus", "hous", "the"]),
        ):
            found = load_query_facts(connection, project.id, query, own).lexemes
            assert found == {"english": english, "german": german}
        assert load_query_facts(connection, project.id, "The", "english").lexemes == {}
        empty = add_project(connection, "empty").id
        assert load_query_facts(connection, empty, "houses", "english") == ({}, False, False, False)


def find(
    connection: Connection,
    project: Project,
    query: str,
    filters: SearchFilters = RAW,
    *,
    known: WordFrequencies | None = None,
    least: int = 0,
) -> KeywordMatches:
    reads = read_keyword_matches(
        project.id,
        filters,
        lexemes=load_query_facts(connection, project.id, query, "english").lexemes,
        indexes=find_word_indexes(connection, project.id),
        frequencies=known,
        least=least,
    )
    (found,) = run_reads(connection, reads)
    return found


def load_known(connection: Connection, project: Project) -> WordFrequencies:
    (index,) = find_word_indexes(connection, project.id).values()
    known = load_frequencies(connection, index.name)
    assert known is not None
    return known


def test_large_project_is_read_by_its_word_index(engine: Engine, project: Project) -> None:
    bound = {"project": project.id, "language0": "english", "word0": "topic77", "pool": 9}
    bound |= {"words0": "'topic77'", "groups0": "'topic77'"} | RAW.parameters
    with engine.begin() as connection:
        indexes = find_word_indexes(connection, project.id)
        fetch_rows(connection, "SELECT set_config('plan_cache_mode', 'force_generic_plan', true)", {})
        by_index, by_rows = (
            "\n".join(line for (line,) in fetch_rows(connection, f"EXPLAIN {query}", bound, prepare=True))
            for query in (build_group_query(RAW, 1, 1, indexes), build_keyword_query(RAW, 1, 1))
        )
    assert f"Bitmap Index Scan on {indexes['task_memories'].name}" in by_index
    assert indexes["task_memories"].name not in by_rows


def test_frequent_words_of_large_project_are_counted(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        known = load_known(connection, project)
        assert known == WordFrequencies(ROWS, {"memori": ROWS, "everyth": ROWS, "els": ROWS}, 5)


@pytest.mark.parametrize(("added", "counted"), [(200, 0), (400, 400)])
def test_words_are_counted_again_after_growth(engine: Engine, project: Project, added: int, counted: int) -> None:
    copy = f"""
        INSERT INTO {SCHEMA}.task_memories
            (project_id, source, external_id, memory_type, execution_summary, content_hash, normalized_hash)
        SELECT :project, 'new', n::text, 'learning', 'it''s a % : \\ sprocket', n::text, n::text
        FROM generate_series(1, :added) n
    """
    with engine.begin() as connection:
        connection.execute(text(copy), {"project": project.id, "added": added})
    assert build_indexes(engine, project.id, MODEL, DIMENSION) == []
    with engine.begin() as connection:
        assert load_known(connection, project).words.get("sprocket", 0) == counted


def test_rare_words_lead_to_the_same_matches(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        known = load_known(connection, project)
        for query in ("topic77", "topic77 topic78 of topic3000", "nowhere", "memory about topic77"):
            fast = find(connection, project, query, known=known)
            slow = find(connection, project, query)
            shared = [at for at, id_ in enumerate(slow.ids) if id_ in fast.ids]
            assert sorted(fast.ids) == sorted(slow.ids[at] for at in shared)
            rare = [at for at, counts in enumerate(slow.counts) if counts.tolist()[-1]]
            assert {slow.ids[at] for at in rare} <= set(fast.ids)


def test_matches_by_index_have_their_similarities(engine: Engine, project: Project) -> None:
    vector = unit_vector(1, DIMENSION)
    with engine.begin() as connection:
        reads = read_keyword_matches(
            project.id,
            RAW,
            lexemes={"english": ["topic77"]},
            indexes=find_word_indexes(connection, project.id),
            frequencies=load_known(connection, project),
            least=0,
            vector=(MODEL, vector),
        )
        (found,) = run_reads(connection, reads)
        known = load_similarities(connection, found.ids, model=MODEL, vector=vector)
    assert known
    assert dict(zip(found.ids, found.similarities, strict=True)) == pytest.approx(known)


def test_filter_does_not_starve_rare_words(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        known = load_known(connection, project)
        decisions = SearchFilters(["raw"], types=["decision"])
        few = find(connection, project, "memory about topic77", decisions, known=known)
        assert few.ids == []
        enough = find(connection, project, "memory about topic77", decisions, known=known, least=10)
        assert len(enough.ids) == ROWS / 100


@pytest.mark.parametrize("times", [1, 2, 3, 40, 200])
def test_keyword_matches_count_words_of_text(engine: Engine, project: Project, times: int) -> None:
    content = " ".join(["gizmo"] * times + ["widget", "o'clock", "a\\b", "1,000"])
    with engine.begin() as connection:
        known = load_known(connection, project)
        update = f"UPDATE {SCHEMA}.task_memories SET execution_summary = :content WHERE external_id = '1'"
        connection.execute(text(update), {"content": content})
        found, same = (find(connection, project, "gizmo widgets sprocket", known=one) for one in (known, None))
        connection.rollback()
    assert (found.ids, found.counts.tolist()) == (same.ids, same.counts.tolist())
    assert found.kinds == ["raw"]
    assert (found.lengths.tolist(), found.counts.tolist()) == ([len(content)], [[times, 0, 1]])


def test_erasure_counts_words_again(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.task_memories SET execution_summary = 'gone'"))
    with autocommit_connection(engine) as connection:
        renew_statistics(connection, project.id)
        assert load_known(connection, project).words == {"gone": ROWS}
