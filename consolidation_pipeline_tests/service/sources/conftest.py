"""Stores of other programs, in a database of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from consolidation_pipeline.service.sources.connections import connect_source
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline_tests.database_pool import temporary_database
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline
from consolidation_pipeline_tests.service.sources.stores import KINDS, MEM0, Kind, Store, all_wordings

SOURCE = "shop"
PROJECT = "shop"
URL_ENV = "SHOP_DATABASE_URL"
# SQL of a vector that belongs to none of the texts.
FOREIGN_VECTOR = "(SELECT array_agg(-value)::vector FROM unnest(vector::real[]) value)"

Connect = Callable[..., Store]


@pytest.fixture
def store_url(store_server: str, store_template: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of the database of a store, in the environment."""
    with temporary_database(store_server, store_template) as url:
        monkeypatch.setenv(URL_ENV, url)
        yield url


@pytest.fixture
def make_store(store_url: str) -> Iterator[Callable[[Kind], Store]]:
    """Function that makes the tables of a kind and fills them."""
    with psycopg.connect(store_url, autocommit=True) as connection:

        def make(kind: Kind) -> Store:
            connection.execute(kind.create)
            store = Store(kind, connection)
            store.add(all_wordings())
            return store

        yield make


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def any_store(request: pytest.FixtureRequest, make_store: Callable[[Kind], Store]) -> Store:
    """Filled store of each kind in turn."""
    return make_store(request.param)


@pytest.fixture
def mem0_store(make_store: Callable[[Kind], Store]) -> Store:
    """Filled collection of mem0."""
    return make_store(MEM0)


def connect(pipeline: Pipeline, store: Store, mode: str = "write") -> None:
    """Connect a store and copy its memories."""
    config = {**store.kind.config, "url_env": URL_ENV}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode=mode)
    sync_source(pipeline.engine, SOURCE)


def consolidate(pipeline: Pipeline, store: Store, mode: str = "write") -> Outcome:
    """Connect a store and run its project, or copy the rows of an earlier run on the same rows."""
    connect(pipeline, store, mode)
    return pipeline.start_from(_run, (store.kind.name, str(store.kind.config), mode, *store.checksum()))


def _run(pipeline: Pipeline) -> Outcome:
    return pipeline.run(PROJECT)


def load_texts(pipeline: Pipeline) -> list[str]:
    """Return the texts of the active memories of the project, sorted."""
    rows = pipeline.rows("SELECT execution_summary AS body FROM {s}.task_memories WHERE archived_at IS NULL ORDER BY 1")
    return [row.body for row in rows]


def count_writes(pipeline: Pipeline) -> dict[str, int]:
    """Return the number of writes by status."""
    rows = pipeline.rows("SELECT status, count(*) AS n FROM {s}.source_writes GROUP BY 1")
    return {row.status: row.n for row in rows}
