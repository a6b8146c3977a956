"""Examination of a store before it is connected: what is there, what may be done, and what will not be done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection, sql

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.mapping import table_identifier
from consolidation_pipeline.connect.row_security import explain_row_security
from consolidation_pipeline.connect.source_table import SourceTable, parse_time
from consolidation_pipeline.connect.store import MIRROR_ONLY, Recognition, Rights
from consolidation_pipeline.core.text.counted_nouns import counted, plural
from consolidation_pipeline.errors import UsageError

_OLDEST_POSTGRES = 130000
# Types of columns that hold no text for people.
_NO_TEXT = ("bytea", "vector", "halfvec", "sparsevec", "tsvector", "real[]", "double precision[]")
# Rows that a server-side cursor sends at once.
_FETCH_ROWS = 20_000
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
        is_table = _is_table(connection, table)
        rights = _read_rights(connection, table)
        if not is_table:
            rights = replace(rights, write=False, watch=False)
        if not rights.read:
            raise UsageError(f"this user may not read {table.mapping.table}: grant SELECT on it")
        _check_text(table)
        total, memories = _count(connection, table)
        if not memories:
            raise UsageError(_describe_no_memories(table, total, table.explain_keyless(connection)))
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
            sidecar_name=f"schema {sidecar.SCHEMA}" + (" and a trigger that tells of changes" if rights.watch else ""),
            is_table=is_table,
            warnings=[
                *_find_warnings(table, rights, dimensions, scopes, is_table, owner=_find_sidecar(connection)[0]),
                *filter(None, [table.explain_keyless(connection)]),
                *_find_odd_values(connection, table, memories),
                *_find_hidden(connection, table),
            ],
        )


def _read_rights(connection: Connection[Any], table: SourceTable) -> Rights:
    mapping = table.mapping
    names = [table_identifier(each).as_string(connection) for each in (mapping.table, *table.other_columns)]
    row = connection.execute(
        """
        SELECT bool_and(has_table_privilege(name, 'SELECT')),
            bool_and(has_table_privilege(name, 'SELECT') AND has_table_privilege(name, 'INSERT')
                AND has_table_privilege(name, 'UPDATE') AND has_table_privilege(name, 'DELETE')),
            has_database_privilege(current_database(), 'CREATE'),
            has_table_privilege(%(table)s, 'TRIGGER')
        FROM unnest(%(names)s::text[]) name
        """,
        {"names": names, "table": names[0]},
    ).fetchone()
    assert row is not None
    read, write, create_schema, watch = row
    owner, usable = _find_sidecar(connection)
    return Rights(read, write, create_schema if owner is None else usable, watch)


def _find_sidecar(connection: Connection[Any]) -> tuple[str | None, bool]:
    """Return the role that owns the schema of the sidecar, None without one, and whether this user may write to it."""
    row = connection.execute(
        """
        SELECT n.nspowner::regrole::text, has_schema_privilege(n.oid, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE')
            AND coalesce((
                SELECT bool_and(has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                    AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
                FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind = 'r'), true)
        FROM pg_namespace n WHERE n.nspname = %s
        """,
        [sidecar.SCHEMA],
    ).fetchone()
    return (None, False) if row is None else row


def _count(connection: Connection[Any], table: SourceTable) -> tuple[int, int]:
    total = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table.mapping.identifier())).fetchone()
    memories = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table.memories_sql)).fetchone()
    assert total is not None
    assert memories is not None
    return total[0], memories[0]


def _describe_no_memories(table: SourceTable, total: int, keyless: str | None) -> str:
    if not total:
        return f"table {table.mapping.table} is empty: connect it when there are memories"
    if keyless is not None:
        return f"{table.mapping.table} has no memories: {keyless}; name the columns that tell its rows apart"
    found = f"none of the {total} rows of {table.mapping.table} has a text at {table.mapping.text}"
    if table.mapping.kind == "langgraph":
        return f"{found}: --text is the path inside of {table.mapping.text.column}, such as content"
    return f"{found}: name the column, or column.key for a value in JSON, that holds it"


def _check_keys(connection: Connection[Any], table: SourceTable) -> None:
    """Raise UsageError if rows share a key. Rows without one are no memories."""
    found = connection.execute(
        sql.SQL("SELECT {key}, count(*) FROM {memories} GROUP BY 1 HAVING count(*) > 1 LIMIT 1").format(
            key=table.key_sql, memories=table.memories_sql
        )
    ).fetchone()
    if found is not None:
        raise UsageError(
            f"{', '.join(table.mapping.key)} is no key of {table.mapping.table}: {found[1]:,} rows have {found[0]!r}; "
            "name the columns that tell every row from the others"
        )


def _check_text(table: SourceTable) -> None:
    text = table.mapping.text
    type_ = table.columns[text.column].type
    if not text.path and type_.partition("(")[0].rpartition(".")[2] in _NO_TEXT:
        raise UsageError(f"{table.mapping.table}.{text} is of type {type_}, which holds no text: name another column")


def _find_odd_values(connection: Connection[Any], table: SourceTable, memories: int) -> Iterator[str]:
    """Yield sentences on texts and metadata of other types, and on times that cannot be read.

    Raises:
        UsageError: No row has a text, but JSON in its place.
    """
    mapping = table.mapping
    counting = sql.SQL("SELECT count(*) FROM {} AND jsonb_typeof({}) IN ('object', 'array')")
    structured = connection.execute(counting.format(table.memories_sql, mapping.text.as_json())).fetchone()
    number = 0 if structured is None else structured[0]
    told = f"{number:,} of {counted(memories, 'row')} {plural(number, 'has')} JSON at {mapping.text} and no text"
    if number == memories:
        raise UsageError(f"{told}: {_advise_text(connection, table)}")
    if number:
        yield told
    metadata = mapping.metadata
    if metadata is not None and not metadata.path and table.columns[metadata.column].type not in ("json", "jsonb"):
        yield f"{metadata} is of type {table.columns[metadata.column].type}, not JSON: no metadata is copied"
    for field, is_needed in ((mapping.created, True), (mapping.updated, False)):
        if field is None:
            continue
        query = sql.SQL("SELECT {} FROM {}").format(field.as_text(), table.memories_sql)
        with connection.cursor("consolidation_times") as cursor:
            cursor.itersize = _FETCH_ROWS
            values = [value for (value,) in cursor.execute(query) if parse_time(value) is None]
        missing = values if is_needed else [value for value in values if value]
        if missing:
            example = next((f", for example {value!r}" for value in missing if value), "")
            number = f"{len(missing):,} of {counted(memories, 'row')}"
            yield f"{number} {plural(len(missing), 'has')} no time at {field}{example}: that of the sync is taken"


def _advise_text(connection: Connection[Any], table: SourceTable) -> str:
    """Return the options that name a text inside of the JSON which all rows have in place of one."""
    text = table.mapping.text
    found = connection.execute(
        sql.SQL(
            "SELECT j.key FROM (SELECT t.* FROM {memories} LIMIT {limit}) t, jsonb_each(CASE jsonb_typeof({value}) "
            "WHEN 'object' THEN {value} END) j WHERE jsonb_typeof(j.value) = 'string' "
            "GROUP BY 1 ORDER BY count(*) DESC, sum(length(j.value::text)) DESC LIMIT 1"
        ).format(memories=table.memories_sql, limit=sql.Literal(_FETCH_ROWS), value=text.as_json())
    ).fetchone()
    key = "KEY" if found is None else found[0]
    option = f"{'.'.join(text.path)}.{key}" if table.mapping.kind == "langgraph" else f"{text}.{key}"
    kind = "" if table.mapping.kind in ("langgraph", "table") else ", with the kind table"
    return f"name the key of it that holds one, such as --text {option}{kind}"


def _find_hidden(connection: Connection[Any], table: SourceTable) -> Iterator[str]:
    """Yield a sentence on rows that this user may not see or change."""
    told = explain_row_security(connection, table.names)
    if told is not None:
        yield f"rows that this user may not see are not copied, and those that it may not change not written: {told}"


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
    is_table: bool,
    *,
    owner: str | None,
) -> Sequence[str]:
    mapping = table.mapping
    found = []
    if not is_table:
        found.append(f"{mapping.table} is no table: all of it is read at each sync, and {MIRROR_ONLY}")
    elif not rights.write:
        found.append(f"this user may not change these tables: {MIRROR_ONLY}")
    elif not rights.create_schema and owner is not None:
        found.append(
            f"schema {sidecar.SCHEMA} belongs to the role {owner}, and this user may not write to it (connect as "
            f"{owner}): {MIRROR_ONLY}"
        )
    elif not rights.create_schema:
        found.append(f"this user may not create schema {sidecar.SCHEMA}: {MIRROR_ONLY}")
    if is_table and not rights.watch:
        found.append("this user may make no trigger: changes are found by reading all rows at each sync")
    if len(dimensions) > 1:
        listed = ", ".join(f"{count} of {dimension}" for dimension, count in dimensions[:_SHOWN])
        found.append(f"there are vectors of several lengths ({listed}): vectors are not taken along")
    if mapping.vector is None:
        found.append("this store has no vectors: that a search finds the successor cannot be checked before a write")
    without = sum(count for scope, count in scopes if not scope)
    empty = sum(count for scope, count in scopes if not all(value.strip() for value in scope.values()))
    named = ", ".join(str(each) for each in mapping.scope.values())
    if empty:
        found.append(
            f"{counted(empty, 'memory')} {plural(empty, 'has')} an empty value at {named}: here it counts as none, and "
            "groups of rows with an empty value and rows with none are not written"
        )
    if mapping.scope and without:
        found.append(f"{without} memories have none of {named}: they are one scope of their own")
    if not mapping.can_insert:
        found.append("no new rows are written to this store: a group is merged only if one of its rows says everything")
    return found
