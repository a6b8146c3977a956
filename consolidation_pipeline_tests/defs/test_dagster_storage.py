"""Storage of Dagster's own records: beside the memories, so that two databases never mix."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from consolidation_pipeline.defs.dagster_storage import ConsolidationPostgresStorage
from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import (
    Engine,
    connect_engine,
    create_dagster_schema,
    dagster_url,
    database_url,
    with_driver,
)

pytestmark = pytest.mark.database


def list_partitions(url: str, monkeypatch: pytest.MonkeyPatch, *, added: str | None = None) -> list[str]:
    """Return the projects that Dagster knows beside a database, one of them ``added``."""
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", url)
    storage = ConsolidationPostgresStorage()
    try:
        if added is not None:
            storage.event_log_storage.add_dynamic_partitions("project", [added])
        return list(storage.event_log_storage.get_dynamic_partitions("project"))
    finally:
        storage.event_log_storage.dispose()


@pytest.mark.slow
def test_two_databases_have_records_of_their_own(
    database_url: str, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list_partitions(database_url, monkeypatch, added="shop") == ["shop"]
    assert list_partitions(empty_database_url, monkeypatch) == []
    assert list_partitions(database_url, monkeypatch) == ["shop"]
    with connect_engine(with_driver(database_url, "psycopg")).connect() as connection:
        places = (
            "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename IN ('runs', 'event_logs', 'alembic_version')"
        )
        assert set(connection.scalars(text(places))) == {"dagster", "consolidation"}


def test_own_url_of_dagster_comes_first(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", database_url)
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql://other/runs")
    assert dagster_url(Settings()) == "postgresql+psycopg2://other/runs"


def test_user_without_right_to_create_schema_is_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE reader_of_memories LOGIN"))
    try:
        url = engine.url.set(username="reader_of_memories").render_as_string(hide_password=False)
        monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", url)
        with pytest.raises(StoreError, match=r"may not create the schema `dagster`.* or set DAGSTER_POSTGRES_URL"):
            create_dagster_schema(Settings())
        connect_engine(with_driver(url, "psycopg")).dispose()
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP ROLE reader_of_memories"))


def test_database_name_may_be_encoded() -> None:
    url = with_driver("postgresql://me:p%2Fw@host/My%20DB?sslmode=require", "psycopg")
    assert url == "postgresql+psycopg://me:p%2Fw@host/My DB?sslmode=require"


def test_empty_url_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", "")
    with pytest.raises(StoreError, match="CONSOLIDATION_DATABASE_URL is empty: unset it"):
        database_url(Settings())
