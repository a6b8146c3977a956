"""Column schemas of the tables, for the asset catalog."""

import dagster as dg

from consolidation_pipeline.store.schema import SCHEMA, metadata


def table_metadata(table: str) -> dict[str, object]:
    """Definition metadata of the asset that keeps ``table``: its name and its columns with their comments."""
    columns = [
        dg.TableColumn(column.name, str(column.type), description=column.comment)
        for column in metadata.tables[f"{SCHEMA}.{table}"].columns
    ]
    return {"dagster/table_name": f"{SCHEMA}.{table}", "dagster/column_schema": dg.TableSchema(columns)}
