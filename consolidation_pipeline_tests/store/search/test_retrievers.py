"""Query plans of semantic and keyword search, and vector indexes with filters and half precision."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from psycopg.errors import ReadOnlySqlTransaction
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.raw_connections import fetch_rows
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.database.vector_copy import format_vector
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.search import index_upkeep, retrievers, scope_indexes, vector_indexes
from consolidation_pipeline.store.search.index_upkeep import build_indexes, drop_indexes
from consolidation_pipeline.store.search.retrievers import (
    SearchFilters,
    build_nearest_query,
    open_snapshot,
    read_nearest,
    run_reads,
)
from consolidation_pipeline.store.search.scope_indexes import ScopeIndex, find_scope_indexes
from consolidation_pipeline.store.search.vector_indexes import (
    SEARCHABLE,
    AbstractIndex,
    VectorIndex,
    count_candidates,
    find_abstract_index,
    find_indexes,
)
from consolidation_pipeline.store.search.word_indexes import WordIndex
from consolidation_pipeline_tests.store import sample_rows
from consolidation_pipeline_tests.store.sample_rows import add_merged, add_project, unit_vector
from consolidation_pipeline_tests.store.search.conftest import DIMENSION, INSERT_MEMORIES, MODEL, RAW, ROWS


def parameters(project: Project, **more: Any) -> dict[str, Any]:
    vector = format_vector(unit_vector(1, DIMENSION))
    return {"project": project.id, "model": MODEL, "dimension": DIMENSION, "vector": vector} | more


def explain(connection: Connection, query: str, parameters: Mapping[str, Any]) -> str:
    # With so few rows Postgres may skip indexes; the test asks if an index fits the query.
    connection.execute(text("SET LOCAL enable_seqscan = off"))
    connection.execute(text("SET LOCAL enable_sort = off"))
    return "\n".join(line for (line,) in fetch_rows(connection, f"EXPLAIN {query}", parameters))


def search(
    connection: Connection, project: Project, filters: SearchFilters, *, indexed: bool
) -> list[tuple[UUID, float]]:
    vector = unit_vector(1, DIMENSION)
    used = find_indexes(connection, project.id, MODEL, DIMENSION) if indexed else {}
    assert bool(used) == indexed
    reads = read_nearest(
        project.id,
        filters,
        model=MODEL,
        vector=vector,
        min_similarity=0.3,
        limit=20,
        indexed=used,
        candidates=count_candidates(connection, used.values(), nearest=20) if used else 0,
    )
    return run_reads(connection, reads)


@pytest.mark.parametrize("archived", [False, True])
def test_semantic_search_uses_vector_index(
    engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch, archived: bool
) -> None:
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 0)
    indexes = [VectorIndex(table, project.id, MODEL, DIMENSION) for table in ("task_memories", "consolidated_memories")]
    abstract = AbstractIndex("consolidated_memories", project.id, MODEL, DIMENSION)
    built = [*indexes, abstract, *(WordIndex(index.table, project.id) for index in indexes)]
    assert build_indexes(engine, project.id, MODEL, DIMENSION) == [index.name for index in built]
    filters = SearchFilters(LEVELS, include_archived=archived)
    with engine.begin() as connection:
        used = find_indexes(connection, project.id, MODEL, DIMENSION)
        assert used == {index.table: index for index in indexes}
        assert find_abstract_index(connection, project.id, MODEL, DIMENSION) == abstract
        query = build_nearest_query(filters, used, 20, abstract_index=abstract)
        plan = explain(connection, query, parameters(project, **filters.parameters))
        for index in [*indexes, abstract]:
            assert f"Index Scan using {index.name}" in plan
        assert f"(embedding)::halfvec({DIMENSION})" in plan
        exact = explain(connection, build_nearest_query(RAW, {}, 20), parameters(project))
        assert "task_memories_active_idx" in exact
        assert not {indexes[0].name, "task_memories_embedded_content_idx"} & set(exact.split())


def test_indexes_cover_searchable_rows(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        merged, other = add_merged(connection, project, "all of them", []), add_project(connection, "other")
        connection.execute(text(INSERT_MEMORIES), {"project": other.id, "rows": 5, "model": MODEL})
        hide = f"UPDATE {SCHEMA}.task_memories SET consolidated_into_id = :merged WHERE external_id::int > 10"
        connection.execute(text(hide), {"merged": merged})
    former, index = (VectorIndex("task_memories", project.id, model, DIMENSION) for model in ("former", MODEL))
    with engine.begin() as connection:
        connection.execute(text(f'CREATE INDEX "{former.name}" ON {SCHEMA}.task_memories (id)'))
    words = WordIndex("task_memories", project.id)
    assert build_indexes(engine, project.id, MODEL, DIMENSION) == [index.name, words.name]
    existing = "SELECT relname, reltuples FROM pg_class WHERE relkind = 'i' AND relname ~ '_[0-9a-f]{12}_' ORDER BY 1"
    with engine.begin() as connection:
        assert connection.execute(text(existing)).all() == [(index.name, 10), (words.name, 10 * 4)]
    drop_indexes(engine, project.id)
    with engine.begin() as connection:
        assert connection.execute(text(existing)).all() == []


def test_index_of_earlier_version_is_read_until_replaced(engine: Engine, project: Project) -> None:
    index = VectorIndex("task_memories", project.id, MODEL, DIMENSION)
    created = index.definition.partition(" WITH ")[0]
    with engine.begin() as connection:
        driver: Any = connection.connection.driver_connection
        driver.execute(f'CREATE INDEX "{index.stem}idx" ON {SCHEMA}.task_memories {created} WHERE {index.condition}')
        assert len(search(connection, project, RAW, indexed=True)) == 20
    assert index.name in build_indexes(engine, project.id, MODEL, DIMENSION)
    options = f"SELECT relname, reloptions FROM pg_class WHERE starts_with(relname, '{index.prefix}')"
    with engine.begin() as connection:
        assert connection.execute(text(options)).all() == [(index.name, ["m=20", "ef_construction=128"])]
        assert len(search(connection, project, RAW, indexed=True)) == 20


def test_index_holds_no_abstract_memories(engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    dimension = len(unit_vector(0))
    index = VectorIndex("consolidated_memories", project.id, sample_rows.MODEL, dimension)
    assert len(index.name) <= 63  # Postgres would cut a longer one
    with engine.begin() as connection:
        ids = [add_merged(connection, project, f"memory {n}", []) for n in range(6)]
        abstract = f"UPDATE {SCHEMA}.consolidated_memories SET kind = 'pattern', abstraction_level = 2 WHERE id = :id"
        connection.execute(text(abstract), [{"id": id_} for id_ in ids[:4]])
    with engine.begin() as connection:
        driver: Any = connection.connection.driver_connection
        earlier = f'CREATE INDEX "{index.stem}m20" ON {SCHEMA}.consolidated_memories {index.definition}'
        driver.execute(f"{earlier} WHERE {index.rows_of_model} AND {SEARCHABLE[index.table]}")
    vector_indexes.list_complete_indexes.cache_clear()
    existing = f"SELECT relname, reltuples FROM pg_class WHERE starts_with(relname, '{index.prefix}')"
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 2)
    with engine.begin() as connection:
        assert find_indexes(connection, project.id, sample_rows.MODEL, dimension) == {index.table: index}
    build_indexes(engine, project.id, sample_rows.MODEL, dimension)
    with engine.begin() as connection:
        assert connection.execute(text(existing)).all() == [(index.name, 2)]
        driver = connection.connection.driver_connection
        driver.execute(f'ALTER INDEX {SCHEMA}."{index.name}" RENAME TO "{index.stem}m20"')
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 3)  # more than it has of merged memories
    build_indexes(engine, project.id, sample_rows.MODEL, dimension)
    with engine.begin() as connection:
        assert connection.execute(text(existing)).all() == []


# Every hundredth is a decision; vectors are random.
INSERT_ABSTRACT = f"""
    INSERT INTO {SCHEMA}.consolidated_memories (id, project_id, kind, abstraction_level, memory_type, content,
        content_hash, normalized_hash, learned_at, created_at, updated_at, embedding, embedding_model, embedding_dim)
    SELECT gen_random_uuid(), :project, CASE WHEN n % 2 = 0 THEN 'pattern' ELSE 'principle' END, 2 + n % 2,
        CASE WHEN n % 100 = 0 THEN 'decision' ELSE 'learning' END, 'Abstract ' || n, n::text, n::text,
        now(), now(), now(),
        (SELECT array_agg(hashtext(n || '/' || d) / 2147483648.0) FROM generate_series(1, {DIMENSION}) d)::vector,
        :model, {DIMENSION}
    FROM generate_series(1, :rows) n
"""
ABSTRACT = SearchFilters([kind for kind, level in LEVELS.items() if level > 1])


def insert_abstract(engine: Engine, project: Project, rows: int, *, model: str = MODEL) -> AbstractIndex:
    """Insert abstract memories; return the index that may be built on them."""
    with engine.begin() as connection:
        connection.execute(text(INSERT_ABSTRACT), {"project": project.id, "rows": rows, "model": model})
    return AbstractIndex("consolidated_memories", project.id, model, DIMENSION)


def list_nearest(
    connection: Connection, filters: SearchFilters, index: AbstractIndex, *, indexed: bool = True
) -> tuple[list[tuple[UUID, float]], bool]:
    """Return the nearest memories, and True if the statement that found them reads the index."""
    reads = read_nearest(
        index.project_id,
        filters,
        model=index.model,
        vector=unit_vector(1, DIMENSION),
        min_similarity=-1.0,
        limit=20,
        indexed={},
        candidates=20 if indexed else 0,
        abstract_index=index if indexed else None,
    )
    query, bound = next(reads)
    found = run_reads(connection, reads, first=fetch_rows(connection, query, bound))
    return [(match.id, match.similarity) for match in found], index.condition in query.replace("%%", "%")


def list_abstract_indexes(engine: Engine) -> list[str]:
    with engine.begin() as connection:
        names = f"SELECT indexname FROM pg_indexes WHERE schemaname = '{SCHEMA}' AND indexdef LIKE '%USING ivfflat%'"
        return sorted(connection.execute(text(names)).scalars())


def test_abstract_index_is_built_from_its_own_threshold(
    engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 200)
    index, former = (insert_abstract(engine, project, 200, model=model) for model in (MODEL, "former"))
    assert len(index.name) <= 63  # Postgres would cut a longer one
    retire = f"UPDATE {SCHEMA}.consolidated_memories SET retired_at = now(), archive_reason = :reason WHERE content = "
    with engine.begin() as connection:
        connection.execute(text(f"{retire} 'Abstract 9'"), {"reason": None})
    assert index.name not in build_indexes(engine, project.id, MODEL, DIMENSION)  # a superseded one does not count
    with engine.begin() as connection:
        assert find_abstract_index(connection, project.id, MODEL, DIMENSION) is None
        connection.execute(text(f"{retire} 'Abstract 9'"), {"reason": "staleness"})
    assert build_indexes(engine, project.id, "former", DIMENSION) == [former.name]
    assert build_indexes(engine, project.id, MODEL, DIMENSION) == [index.name]
    assert build_indexes(engine, project.id, MODEL, DIMENSION) == []
    assert list_abstract_indexes(engine) == [index.name]  # that of another model is gone
    with engine.begin() as connection:
        assert find_abstract_index(connection, project.id, MODEL, DIMENSION) == index
        used = find_indexes(connection, project.id, MODEL, DIMENSION)
        assert used.keys() == {"task_memories"}
        rows = f"UPDATE pg_class SET reltuples = 9000000 WHERE relname = '{index.name}'"
        connection.execute(text(rows))
        vector_indexes.list_complete_indexes.cache_clear()
        assert count_candidates(connection, used.values(), nearest=40) < 100
    drop_indexes(engine, project.id)
    assert list_abstract_indexes(engine) == []


def test_search_through_abstract_index_finds_the_nearest(
    engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 1_000)
    index = insert_abstract(engine, project, 1_000)
    assert index.name in build_indexes(engine, project.id, MODEL, DIMENSION)
    with engine.begin() as connection:
        for filters in (ABSTRACT, SearchFilters(LEVELS), SearchFilters(LEVELS, include_archived=True)):
            exact, _ = list_nearest(connection, filters, index, indexed=False)
            found, through = list_nearest(connection, filters, index)
            assert through
            assert len(set(found) & set(exact)) >= 0.9 * len(exact)  # with the same similarities
        assert connection.execute(text("SHOW ivfflat.probes")).scalar_one() == str(vector_indexes.PROBES)
        narrow = (
            SearchFilters(LEVELS, types=["decision"]),
            SearchFilters(LEVELS, as_of=datetime.now(UTC)),
            SearchFilters(["pattern", "summary"]),
        )
        for filters in narrow:
            found, through = list_nearest(connection, filters, index)
            assert not through
            assert found == list_nearest(connection, filters, index, indexed=False)[0] != []


def test_archived_rows_do_not_starve_abstract_index(
    engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 1_000)
    monkeypatch.setattr(retrievers, "PROBES", 1)
    index = insert_abstract(engine, project, 1_000)
    build_indexes(engine, project.id, MODEL, DIMENSION)
    with engine.begin() as connection:
        archive = (
            f"UPDATE {SCHEMA}.consolidated_memories SET retired_at = now(), archive_reason = 'staleness' "
            "WHERE substr(content, 10)::integer % 50 > 0"
        )
        connection.execute(text(archive))
        found, through = list_nearest(connection, ABSTRACT, index)
        assert through
        assert len(found) == 20
        assert found == list_nearest(connection, ABSTRACT, index, indexed=False)[0]


@pytest.mark.parametrize("option", ["user_id", "user_id,agent_id", "metadata.team"])
def test_rows_of_a_scope_are_found_by_its_index(
    engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    with engine.begin() as connection:
        merged = add_merged(connection, project, "all of them", [], scope_key="u1")
        assign = (
            f"UPDATE {SCHEMA}.task_memories SET user_id = 'u' || external_id::int % 300, agent_id = '', metadata = "
        )
        connection.execute(text(f"{assign} jsonb_build_object('team', 'u' || external_id::int % 300)"))
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", 0)
    assert find_names(engine, project, option) == []
    build_indexes(engine, project.id, MODEL, DIMENSION, scope=option)
    assert find_names(engine, project, option) == [
        ScopeIndex(table, project.id, option).name for table in ("task_memories", "consolidated_memories")
    ]
    scope = "u1/" if "," in option else "u1"
    filters = SearchFilters(LEVELS, scope=scope, scope_option=option)
    with engine.begin() as connection:
        connection.execute(text(f"ANALYZE {SCHEMA}.task_memories"))
        scoped = find_scope_indexes(connection, project.id, option, scope)
        query = build_nearest_query(filters, {}, 20, scoped=scoped)
        bound = parameters(project, **filters.parameters)
        plan = explain(connection, query, bound)
        assert scoped["task_memories"].name in plan
        found = fetch_rows(connection, query, bound)
        assert found == fetch_rows(connection, build_nearest_query(filters, {}, 20), bound)
        assert len(found) == ROWS // 300
        assert str(merged) not in {row[0] for row in found}  # it has a vector of another model
    build_indexes(engine, project.id, MODEL, DIMENSION, scope="agent_id")
    assert find_names(engine, project, option) == []  # the option has changed
    monkeypatch.setattr(scope_indexes, "MOST_COMPARED", ROWS - 1)
    assert find_names(engine, project, "agent_id") == []  # all rows have the empty scope
    monkeypatch.setattr(scope_indexes, "MOST_COMPARED", ROWS)
    assert len(find_names(engine, project, "agent_id")) == 2
    drop_indexes(engine, project.id)
    assert find_names(engine, project, "agent_id") == []


def find_names(engine: Engine, project: Project, option: str) -> list[str]:
    """Return the names of the indexes that a search of the scope "u1" would use."""
    vector_indexes.list_complete_indexes.cache_clear()
    with engine.begin() as connection:
        scope = "u1/" if "," in option else "u1"
        return [index.name for index in find_scope_indexes(connection, project.id, option, scope).values()]


def test_large_index_is_searched_with_more_candidates(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        index = VectorIndex("task_memories", project.id, MODEL, DIMENSION)
        assert count_candidates(connection, [index], nearest=40) == 40
    build_indexes(engine, project.id, MODEL, DIMENSION)
    counted = []
    for rows in (ROWS, 30 * ROWS):
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE pg_class SET reltuples = {rows} WHERE relname = '{index.name}'"))
            vector_indexes.list_complete_indexes.cache_clear()
            counted.append(count_candidates(connection, [index], nearest=40))
            search(connection, project, RAW, indexed=True)
            assert connection.execute(text("SHOW hnsw.ef_search")).scalar_one() == str(counted[-1])
    assert 2.8 < counted[1] / counted[0] < 3.3
    with engine.begin() as connection:
        fewer = count_candidates(connection, [index], nearest=40, beside_words=True)
    assert 0.6 < fewer / counted[1] < 0.8


def test_snapshot_is_consistent_and_read_only(engine: Engine, project: Project) -> None:
    with open_snapshot(engine) as connection:
        before = [search(connection, project, RAW, indexed=False) for _ in range(9)]
        with engine.begin() as other:
            other.execute(text(f"DELETE FROM {SCHEMA}.task_memories"))
        assert search(connection, project, RAW, indexed=False) == before[0] != []
        plans = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE strpos(statement, 'nearest') > 0"
        ((generic, custom),) = fetch_rows(connection, plans, {})
        assert generic > 0
        assert custom == 0
    with pytest.raises(ReadOnlySqlTransaction), open_snapshot(engine) as connection:
        fetch_rows(connection, f"DELETE FROM {SCHEMA}.projects RETURNING id", {})
    with open_snapshot(engine) as connection:
        assert search(connection, project, RAW, indexed=False) == []


def test_vector_index_finds_most_exact_neighbors(engine: Engine, project: Project) -> None:
    build_indexes(engine, project.id, MODEL, DIMENSION)
    with engine.begin() as connection:
        exact, approximate = (search(connection, project, RAW, indexed=on) for on in (False, True))
        assert len(exact) == 20
        # The index is approximate and may miss some rows.
        assert len({near.id for near in exact} & {near.id for near in approximate}) >= 14
        cosines = {near.id: near.similarity for near in exact}
        for id_, similarity, _ in approximate:
            assert similarity == pytest.approx(cosines.get(id_, similarity), abs=1e-12)


def test_filter_does_not_starve_indexed_search(engine: Engine, project: Project) -> None:
    build_indexes(engine, project.id, MODEL, DIMENSION)
    with engine.begin() as connection:
        connection.execute(text("SELECT set_config('hnsw.max_scan_tuples', '50', true)"))
        for filters in (SearchFilters(["raw"], types=["decision"]), SearchFilters(LEVELS, types=["decision"])):
            exact = search(connection, project, filters, indexed=False)
            assert search(connection, project, filters, indexed=True) == exact


def test_indexes_are_built_once_for_large_projects(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        small = add_project(connection, "small")
        connection.execute(text(INSERT_MEMORIES), {"project": small.id, "rows": 5, "model": "other"})
        assert find_indexes(connection, project.id, MODEL, DIMENSION) == {}
    assert build_indexes(engine, small.id, "other", DIMENSION) == []
    assert build_indexes(engine, project.id, MODEL, 4_001) == [WordIndex("task_memories", project.id).name]
    assert len(build_indexes(engine, project.id, MODEL, DIMENSION)) == 1
    assert build_indexes(engine, project.id, MODEL, DIMENSION) == []
    with engine.connect() as connection:
        assert find_indexes(connection, small.id, MODEL, DIMENSION) == {}


def test_index_builds_with_little_shared_memory(
    engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_indexes, "_BYTES_OF_LINKS", 2**30)
    monkeypatch.setattr(index_upkeep, "_MAX_BUILD_MEMORY", 2**40)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {SCHEMA}.task_memories SET (parallel_workers = 2)"))
    assert len(build_indexes(engine, project.id, MODEL, DIMENSION)) == 2
    with engine.connect() as connection:
        assert connection.execute(text("SHOW maintenance_work_mem")).scalar_one() == "64MB"


def test_connection_lost_during_build_is_reported(
    engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminate_backend(connection: Connection, _: VectorIndex) -> bool:
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return True

    with monkeypatch.context() as patch:
        patch.setattr(index_upkeep, "_build", terminate_backend)
        with pytest.raises(OperationalError, match="terminating connection"):
            build_indexes(engine, project.id, MODEL, DIMENSION)
    assert len(build_indexes(engine, project.id, MODEL, DIMENSION)) == 2


def test_open_transaction_does_not_block_index_build(
    engine: Engine, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_upkeep, "_LOCK_TIMEOUT", "50ms")
    with engine.begin() as writer:
        writer.execute(text(f"UPDATE {SCHEMA}.task_memories SET reused_count = 1 WHERE external_id = '1'"))
        assert build_indexes(engine, project.id, MODEL, DIMENSION) == []
    with engine.connect() as connection:
        assert find_indexes(connection, project.id, MODEL, DIMENSION) == {}
    assert len(build_indexes(engine, project.id, MODEL, DIMENSION)) == 2


def test_search_ignores_other_dimensions(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        update = (
            f"UPDATE {SCHEMA}.task_memories SET embedding = CAST(:vector AS vector), embedding_dim = 3 "
            "WHERE project_id = :project AND external_id::int <= 100"
        )
        connection.execute(text(update), {"project": project.id, "vector": format_vector(np.ones(3, np.float32))})
        assert len(search(connection, project, RAW, indexed=False)) == 20
