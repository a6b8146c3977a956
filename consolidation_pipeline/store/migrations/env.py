"""Alembic's entry point: migrations run on the connection of ``store/database/engine.py``."""

from alembic import context
from sqlalchemy import text

from consolidation_pipeline.store.database.schema import SCHEMA, metadata

connection = context.config.attributes["connection"]
connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
context.configure(
    connection=connection,
    target_metadata=metadata,
    include_schemas=True,
    include_name=lambda name, kind, _: kind != "schema" or name == SCHEMA,
    version_table_schema=SCHEMA,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
