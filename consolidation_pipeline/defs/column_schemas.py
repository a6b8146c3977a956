"""Column schemas of the tables, for the asset catalog."""

import dagster as dg

from consolidation_pipeline.store.database.schema import describe_columns


def table_metadata(table: str) -> dict[str, str | dg.TableSchema]:
    """Definition metadata of the asset that keeps ``table``: its name and its columns with their comments."""
    columns = [dg.TableColumn(name, kind, description=comment) for name, kind, comment in describe_columns(table)]
    return {"dagster/table_name": f"consolidation.{table}", "dagster/column_schema": dg.TableSchema(columns)}
