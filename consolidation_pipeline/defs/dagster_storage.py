"""Dagster's own storage: the Postgres that ``DAGSTER_POSTGRES_URL`` names, else a database of the embedded server.

``dagster.yaml`` names this class. A plain ``env:`` there would stop the UI whenever the variable is not set.

Dagster opens a connection for each statement and asks again and again for tables that do not go away: 800 times in a
run of all assets, most of what such a run takes in a small project. Here a process keeps its connection and asks once.
"""

from collections.abc import Callable
from typing import Any

from dagster_postgres import DagsterPostgresStorage, PostgresEventLogStorage
from dagster_postgres.utils import create_pg_engine

from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import dagster_url


class _EventLogStorage(PostgresEventLogStorage):
    """Remembers which tables and columns there are, and closes the connection with the instance."""

    def __init__(self, postgres_url: str) -> None:
        super().__init__(postgres_url)
        self._found: set[str] = set()

    def has_table(self, table_name: str) -> bool:
        return self._remember(table_name, super().has_table)

    def has_asset_key_col(self, column_name: str) -> bool:
        return self._remember(column_name, super().has_asset_key_col)

    def _remember(self, name: str, is_there: Callable[[str], bool]) -> bool:
        if name not in self._found and is_there(name):
            self._found.add(name)
        return name in self._found

    def dispose(self) -> None:
        super().dispose()
        self._engine.dispose()


class ConsolidationPostgresStorage(DagsterPostgresStorage):
    """``DagsterPostgresStorage`` that finds its own URL and keeps its connection; takes no configuration."""

    def __init__(self, inst_data: Any = None) -> None:
        url = dagster_url(Settings())
        super().__init__(url, inst_data=inst_data)
        self._event_log_storage = _EventLogStorage(url)
        # One for all three, as many more as threads ask for at once; a connection that died at rest is replaced.
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
