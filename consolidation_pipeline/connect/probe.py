"""Examination of a store before it is connected: what is there, what may be done, and what will not be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import Connection, sql

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.mapping import table_identifier
from consolidation_pipeline.connect.source_table import SourceTable
from consolidation_pipeline.connect.store import MIRROR_ONLY, Recognition, Rights
from consolidation_pipeline.errors import UsageError

_OLDEST_POSTGRES = 130000
# A warning names so many values at most.
_SHOWN = 5


def probe(connection: Connection[Any], table: SourceTable) -> Recognition:
    """Examine a store, in one read-only transaction.

    Raises:
        UsageError: Postgres is too old, this user may not read, nothing in the table is a memory, or the columns of
            the key do not tell its rows apart.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        version = connection.info.server_version
        if version < _OLDEST_POSTGRES:
            raise UsageError(f"Postgres {version // 10000} is too old to connect to: 13 or newer is needed")
        rights = _read_rights(connection, table)
        if not rights.read:
            raise UsageError(f"this user may not read {table.mapping.table}: grant SELECT on it")
        total, memories = _count(connection, table)
        if not memories:
            raise UsageError(_describe_no_memories(table, total))
        _check_keys(connection, table)
        dimensions = _list_dimensions(connection, table)
        scopes = table.count_scopes(connection)
        return Recognition(
            kind=table.mapping.kind,
            table=table.mapping.table,
            server=f"Postgres {version // 10000}.{version % 10000}",
            memories=memories,
            skipped=total - memories,
            scopes=len(scopes),
            dimension=dimensions[0][0] if dimensions else None,
            rights=rights,
            is_table=_is_table(connection, table),
            warnings=[*_find_warnings(table, rights, dimensions, scopes)],
        )


def _read_rights(connection: Connection[Any], table: SourceTable) -> Rights:
    mapping = table.mapping
    names = [table_identifier(each).as_string(connection) for each in (mapping.table, *table.other_columns)]
    row = connection.execute(
        """
        SELECT bool_and(has_table_privilege(name, 'SELECT')),
            bool_and(has_table_privilege(name, 'SELECT') AND has_table_privilege(name, 'INSERT')
                AND has_table_privilege(name, 'UPDATE') AND has_table_privilege(name, 'DELETE')),
            has_database_privilege(current_database(), 'CREATE') OR to_regnamespace(%(sidecar)s) IS NOT NULL,
            has_table_privilege(%(table)s, 'TRIGGER')
        FROM unnest(%(names)s::text[]) name
        """,
        {"names": names, "sidecar": sidecar.SCHEMA, "table": names[0]},
    ).fetchone()
    assert row is not None
    return Rights(*row)


def _count(connection: Connection[Any], table: SourceTable) -> tuple[int, int]:
    total = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table.mapping.identifier())).fetchone()
    memories = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table.memories_sql)).fetchone()
    assert total is not None
    assert memories is not None
    return total[0], memories[0]


def _describe_no_memories(table: SourceTable, total: int) -> str:
    if not total:
        return f"table {table.mapping.table} is empty: connect it when there are memories"
    return (
        f"none of the {total} rows of {table.mapping.table} has a text at {table.mapping.text}: name the column, or "
        "column.key for a value in JSON, that holds it"
    )


def _check_keys(connection: Connection[Any], table: SourceTable) -> None:
    found = connection.execute(
        sql.SQL(
            "SELECT {key}, count(*) FROM {memories} GROUP BY 1 HAVING {key} IS NULL OR count(*) > 1 LIMIT 1"
        ).format(key=table.key_sql, memories=table.memories_sql)
    ).fetchone()
    if found is not None:
        raise UsageError(
            f"{', '.join(table.mapping.key)} is no key of {table.mapping.table}: {found[1]} rows have {found[0]!r}; "
            "name the columns that tell every row from the others"
        )


def _is_table(connection: Connection[Any], table: SourceTable) -> bool:
    found = connection.execute(
        "SELECT relkind IN ('r', 'p') FROM pg_class WHERE oid = to_regclass(%s)",
        [table_identifier(table.mapping.table).as_string(connection)],
    ).fetchone()
    return found == (True,)


def _list_dimensions(connection: Connection[Any], table: SourceTable) -> list[tuple[int, int]]:
    """Return dimension and number of rows of the vectors, most frequent first."""
    vector = table.mapping.vector
    if vector is None:
        return []
    name = vector.part or table.mapping.table
    return connection.execute(
        sql.SQL(
            "SELECT vector_dims({column}), count(*) FROM {table} WHERE {column} IS NOT NULL "
            "GROUP BY 1 ORDER BY 2 DESC, 1"
        ).format(column=sql.Identifier(vector.column), table=table_identifier(name))
    ).fetchall()


def _find_warnings(
    table: SourceTable,
    rights: Rights,
    dimensions: Sequence[tuple[int, int]],
    scopes: Sequence[tuple[Mapping[str, str], int]],
) -> Sequence[str]:
    mapping = table.mapping
    found = []
    if not rights.write:
        found.append(f"this user may not change these tables: {MIRROR_ONLY}")
    elif not rights.create_schema:
        found.append(f"this user may not create schema {sidecar.SCHEMA}: {MIRROR_ONLY}")
    if not rights.watch:
        found.append("this user may make no trigger: changes are found by reading all rows at each sync")
    if len(dimensions) > 1:
        listed = ", ".join(f"{count} of {dimension}" for dimension, count in dimensions[:_SHOWN])
        found.append(f"there are vectors of several lengths ({listed}): vectors are not taken along")
    if mapping.vector is None:
        found.append("this store has no vectors: that a search finds the successor cannot be checked before a write")
    without = sum(count for scope, count in scopes if not scope)
    if mapping.scope and without:
        named = ", ".join(str(each) for each in mapping.scope.values())
        found.append(f"{without} memories have none of {named}: they are one scope of their own")
    if not mapping.can_insert:
        found.append("no new rows are written to this store: a group is merged only if one of its rows says everything")
    return found
