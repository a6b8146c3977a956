"""Project that is large enough for indexes of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.search import index_upkeep
from consolidation_pipeline.store.search.retrievers import SearchFilters
from consolidation_pipeline_tests.database_pool import DatabasePool, temporary_database
from consolidation_pipeline_tests.store.sample_rows import add_project

ROWS, DIMENSION, MODEL = 3_000, 16, "it's/a:model%20"
RAW = SearchFilters(["raw"])
# Every hundredth memory is a decision; vectors are random.
INSERT_MEMORIES = f"""
    INSERT INTO {SCHEMA}.task_memories (project_id, source, external_id, memory_type, execution_summary, content_hash,
        normalized_hash, embedding, embedding_model, embedding_dim)
    SELECT :project, 'test', n::text, CASE WHEN n % 100 = 0 THEN 'decision' ELSE 'learning' END,
        'Memory about topic' || n || ' and everything else', n::text, n::text,
        (SELECT array_agg(hashtext(n || ' ' || d) / 2147483648.0) FROM generate_series(1, {DIMENSION}) d)::vector,
        :model, {DIMENSION}
    FROM generate_series(1, :rows) n
"""


@pytest.fixture(scope="session")
def large_project(databases: DatabasePool) -> Iterator[tuple[str, Project]]:
    """Name of a database with a project that has enough memories for a vector index, and the project."""
    with databases.engine() as engine:
        with engine.begin() as connection:
            project = add_project(connection)
            connection.execute(text(INSERT_MEMORIES), {"project": project.id, "rows": ROWS, "model": MODEL})
            connection.execute(text(f"ANALYZE {SCHEMA}.task_memories"))
        engine.dispose()  # Postgres copies only databases without connections
        yield str(engine.url.database), project


@pytest.fixture
def database_url(server: str, large_project: tuple[str, Project]) -> Iterator[str]:
    """URL of a copy of the database with the large project."""
    with temporary_database(server, large_project[0]) as url:
        yield url


@pytest.fixture
def project(large_project: tuple[str, Project], monkeypatch: pytest.MonkeyPatch) -> Project:
    """Project with enough memories for a vector index."""
    monkeypatch.setattr(index_upkeep, "MIN_INDEXED_ROWS", ROWS)
    return large_project[1]
