"""Dagster's own storage: the Postgres that ``DAGSTER_POSTGRES_URL`` names, else a database of the embedded server.

``dagster.yaml`` names this class. A plain ``env:`` there would stop the UI whenever the variable is not set.
"""

from typing import Any

from dagster_postgres import DagsterPostgresStorage

from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.engine import dagster_url


class ConsolidationPostgresStorage(DagsterPostgresStorage):
    """``DagsterPostgresStorage`` that finds its own URL; takes no configuration."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "ConsolidationPostgresStorage":
        del config_value
        return cls(postgres_url=dagster_url(Settings()), inst_data=inst_data)
