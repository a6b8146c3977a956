"""Dagster's own storage: Postgres at ``DAGSTER_POSTGRES_URL``, else beside the memories.

With a database of your own, that is its schema ``dagster``, otherwise a database of the embedded server. So runs and
partitions of one database of memories never appear in the UI of another.

``dagster.yaml`` names this class. A plain ``env:`` there would stop the UI if the variable is not set.

Dagster opens a connection for each statement and checks again and again if its tables exist: 800 times in a run of all
assets, which is most of the run's time in a small project. Here, a process keeps its connection and checks once.
"""

from collections.abc import Callable
from typing import Any

from dagster_postgres import DagsterPostgresStorage, PostgresEventLogStorage
from dagster_postgres.utils import create_pg_engine

from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import create_dagster_schema, dagster_url


class _EventLogStorage(PostgresEventLogStorage):
    """Event log storage that caches which tables and columns exist, and closes its connection with the instance."""

    def __init__(self, postgres_url: str) -> None:
        super().__init__(postgres_url)
        self._existing: set[str] = set()

    def has_table(self, table_name: str) -> bool:
        return self._check_once(table_name, super().has_table)

    def has_asset_key_col(self, column_name: str) -> bool:
        return self._check_once(column_name, super().has_asset_key_col)

    def _check_once(self, name: str, exists: Callable[[str], bool]) -> bool:
        if name not in self._existing and exists(name):
            self._existing.add(name)
        return name in self._existing

    def dispose(self) -> None:
        super().dispose()
        self._engine.dispose()


class ConsolidationPostgresStorage(DagsterPostgresStorage):
    """``DagsterPostgresStorage`` that finds its own URL and keeps its connection. It takes no configuration."""

    def __init__(self, inst_data: Any = None) -> None:
        settings = Settings()
        create_dagster_schema(settings)
        url = dagster_url(settings)
        super().__init__(url, inst_data=inst_data)
        self._event_log_storage = _EventLogStorage(url)
        # One pool for the three storages: one connection is kept, more are opened on demand, dead ones are replaced.
        engine = create_pg_engine(url, isolation_level="AUTOCOMMIT", pool_size=1, max_overflow=-1, pool_pre_ping=True)
        for storage in (self._event_log_storage, self._run_storage, self._schedule_storage):
            storage._engine = engine

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "ConsolidationPostgresStorage":
        del config_value
        return cls(inst_data)
