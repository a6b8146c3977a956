"""A mapped table of a store: its columns, and statements that read, lock and find its memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import class_row

from consolidation_pipeline.connect.key_checks import has_unique_key, list_nullable
from consolidation_pipeline.connect.mapping import Field, Links, TableMapping, table_identifier
from consolidation_pipeline.connect.store import SourceRow
from consolidation_pipeline.core.text.counted_nouns import counted, plural
from consolidation_pipeline.errors import UsageError

# Rows that a server-side cursor sends at once.
_FETCH_ROWS = 2_000


@dataclass(frozen=True)
class Column:
    """A column of a table in Postgres' words. ``generated``: its value cannot be written."""

    name: str
    type: str
    generated: bool


_LIST_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod), attgenerated <> ''
    FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
    ORDER BY attnum
"""


def _drop_missing(connection: Connection[Any], mapping: TableMapping) -> TableMapping:
    """Return the mapping without the parts and links whose tables do not exist: stores make them when needed first."""
    wanted = list(mapping.other_tables)
    rows = connection.execute(
        "SELECT name FROM unnest(%s::text[], %s::text[]) t(name, quoted) WHERE to_regclass(quoted) IS NOT NULL",
        [wanted, [table_identifier(name).as_string(connection) for name in wanted]],
    )
    present = {name for (name,) in rows}
    vector = mapping.vector
    return replace(
        mapping,
        parts=tuple(part for part in mapping.parts if part.table in present),
        links=tuple(links for links in mapping.links if links.table in present),
        vector=vector if vector is not None and (vector.part is None or vector.part in present) else None,
    )


def list_columns(connection: Connection[Any], table: str) -> dict[str, Column]:
    """Return the columns of a table by name.

    Raises:
        UsageError: There is no such table, or this user may not see its schema.
    """
    found = connection.execute(_LIST_COLUMNS, [table_identifier(table).as_string(connection)]).fetchall()
    if not found:
        raise UsageError(
            f"table {table} does not exist in this database, or this user may not see it{_suggest(connection, table)}"
        )
    return {name: Column(name, type_, generated) for name, type_, generated in found}


_FIND_SIMILAR = """
    SELECT CASE WHEN n.nspname = ANY(current_schemas(false)) THEN '' ELSE n.nspname || '.' END || c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
        AND lower(%(name)s) IN (lower(c.relname), lower(n.nspname || '.' || c.relname))
    ORDER BY 1 LIMIT 1
"""


def _suggest(connection: Connection[Any], table: str) -> str:
    """Return the name of a table that differs in schema, case or quotes only, as the end of a sentence."""
    found = connection.execute(_FIND_SIMILAR, {"name": table.replace('"', "")}).fetchone()
    return "" if found is None else f"; there is {found[0]}: give names as they are, without quotes"


class SourceTable:
    """A mapping that fits the tables of one database.

    Raises:
        UsageError: A table or column of the mapping does not exist, or the vector column holds no vectors.
    """

    def __init__(self, connection: Connection[Any], mapping: TableMapping) -> None:
        self.mapping = mapping = _drop_missing(connection, mapping)
        self.columns = list_columns(connection, mapping.table)
        if mapping.lifetime is not None and mapping.lifetime.length not in self.columns:  # an older version's table
            self.mapping = mapping = replace(mapping, lifetime=None)
        self.other_columns = {name: list_columns(connection, name) for name in mapping.other_tables}
        self._check_columns()

    def _check_columns(self) -> None:
        mapping = self.mapping
        named = [*mapping.key, *(each.column for each in self._fields())]
        _check_present(mapping.table, self.columns, named)
        for part in mapping.parts:
            _check_present(part.table, self.other_columns[part.table], part.key)
        for links in mapping.links:
            _check_present(links.table, self.other_columns[links.table], [*links.key, links.keys.column])
        if mapping.vector is not None:
            table = mapping.vector.part or mapping.table
            columns = self.columns_of(table)
            _check_present(table, columns, [mapping.vector.column])
            type_ = columns[mapping.vector.column].type
            if type_.partition("(")[0].rpartition(".")[2] not in ("vector", "halfvec"):
                raise UsageError(
                    f"{table}.{mapping.vector.column} is of type {type_}: name a column of type vector or halfvec"
                )

    def _fields(self) -> list[Field]:
        mapping = self.mapping
        optional = (mapping.created, mapping.updated, mapping.metadata)
        return [mapping.text, *mapping.scope.values(), *(each for each in optional if each is not None)]

    def columns_of(self, table: str) -> Mapping[str, Column]:
        """Return the columns of the mapped table, a part or a table of links by name."""
        return self.columns if table == self.mapping.table else self.other_columns[table]

    def writable_columns(self, table: str) -> list[str]:
        """Return the columns of the mapped table, a part or a table of links that are not generated."""
        return [column.name for column in self.columns_of(table).values() if not column.generated]

    @cached_property
    def key_sql(self) -> sql.Composable:
        """SQL of the key of row ``t`` as text."""
        return key_sql(self.mapping.key)

    def among_keys(self, columns: Sequence[str] | None = None, *, table: str | None = None) -> sql.Composable:
        """Return SQL that is true if the key of row ``t`` is in the bound array ``keys``.

        Args:
            columns: Columns of ``t`` that hold the key; None = those of the mapped table.
            table: Table whose own key these columns are; None = the mapped one.
        """
        names = sql.SQL(", ").join(sql.Identifier("t", name) for name in columns or self.mapping.key)
        typed = self.mapping.key if table is None else columns or ()
        known = self.columns if table is None else self.columns_of(table)
        types = [sql.SQL(known[name].type) for name in typed]
        if len(types) == 1:
            values = sql.SQL("k::{}").format(types[0])
        else:
            values = sql.SQL(", ").join(
                sql.SQL("(k::jsonb ->> {})::{}").format(sql.Literal(at), type_) for at, type_ in enumerate(types)
            )
        return sql.SQL("({}) IN (SELECT {} FROM unnest(%(keys)s::text[]) k)").format(names, values)

    @cached_property
    def stamp_sql(self) -> sql.Composable:
        """SQL of the stamp of row ``t``: SHA-256 of text, scope and metadata."""
        parts = [self.mapping.text.as_text(), *(each.as_text() for each in self.mapping.scope.values())]
        if self.mapping.metadata is not None:
            parts.append(sql.SQL("{}::text").format(self._metadata_sql))
        packed = sql.SQL("jsonb_build_array({})::text").format(sql.SQL(", ").join(parts))
        return sql.SQL("encode(sha256(convert_to({}, 'UTF8')), 'hex')").format(packed)

    @cached_property
    def _metadata_sql(self) -> sql.Composable:
        if self.mapping.metadata is None:
            return sql.SQL("'{}'::jsonb")
        value = self.mapping.metadata.as_json()
        return sql.SQL(
            "CASE WHEN jsonb_typeof({value}) = 'object' THEN {value} - {keys}::text[] ELSE '{{}}' END"
        ).format(value=value, keys=sql.Literal(list(self.mapping.metadata_without)))

    @cached_property
    def _scope_sql(self) -> sql.Composable:
        pairs = [part for name, each in self.mapping.scope.items() for part in (sql.Literal(name), each.as_text())]
        return sql.SQL("jsonb_strip_nulls(jsonb_build_object({}))").format(sql.SQL(", ").join(pairs))

    def _vector_sql(self, wanted: bool) -> sql.Composable:
        vector = self.mapping.vector
        if not wanted or vector is None:
            return sql.SQL("NULL::text")
        if vector.part is None:
            return sql.SQL("{}::text").format(sql.Identifier("t", vector.column))
        other: sql.Composable = sql.SQL("false")
        if vector.field is not None:
            column, name = vector.field
            other = sql.SQL("v.{} <> {}").format(sql.Identifier(column), sql.Literal(name))
        return sql.SQL("(SELECT v.{}::text FROM {} v WHERE {} ORDER BY {}, v::text LIMIT 1)").format(
            sql.Identifier(vector.column), table_identifier(vector.part), self._same_key(vector.part), other
        )

    def _same_key(self, part: str) -> sql.Composable:
        """Return SQL that is true if row ``v`` of a part belongs to row ``t``."""
        keys = zip(self.mapping.other_tables[part], self.mapping.key, strict=True)
        return sql.SQL(" AND ").join(
            sql.SQL("v.{} = t.{}").format(sql.Identifier(theirs), sql.Identifier(ours)) for theirs, ours in keys
        )

    @cached_property
    def has_key_sql(self) -> sql.Composable:
        """SQL that is true if the key of row ``t`` is null in no column: nothing finds other rows again."""
        return sql.SQL("ROW({}) IS NOT NULL").format(
            sql.SQL(", ").join(sql.Identifier("t", name) for name in self.mapping.key)
        )

    @cached_property
    def _texts_sql(self) -> sql.Composable:
        """SQL of the table and the condition that all rows with a text meet: ``table t WHERE ..``."""
        return sql.SQL("{} t WHERE ({}) AND nullif(btrim({}, E' \\t\\n\\r\\f\\x0b'), '') IS NOT NULL").format(
            self.mapping.identifier(),
            sql.SQL(self.mapping.where),
            self.mapping.text.as_text(),
        )

    @cached_property
    def memories_sql(self) -> sql.Composable:
        """SQL as ``_texts_sql``, of the rows that have a key too: the memories."""
        return sql.SQL("{} AND {}").format(self._texts_sql, self.has_key_sql)

    def explain_keyless(self, connection: Connection[Any]) -> str | None:
        """Return a sentence on rows that have a text and no key; None if there are none."""
        if not list_nullable(connection, self.mapping):
            return None
        query = sql.SQL("SELECT count(*) FROM {} AND NOT {}").format(self._texts_sql, self.has_key_sql)
        found = connection.execute(query).fetchone()
        assert found is not None
        key = ", ".join(self.mapping.key)
        told = f"{counted(found[0], 'row')} {plural(found[0], 'has')} no value at {key}: neither copied nor written"
        return told if found[0] else None

    def count_others(self, connection: Connection[Any], without: Sequence[str], *, distinct: bool) -> int:
        """Return the number of memories, but for those with the keys ``without``.

        Args:
            distinct: Rows may share a key, and are one then.
        """
        number = sql.SQL("count(DISTINCT {})" if distinct else "count(*)").format(self.key_sql)
        query = sql.SQL("SELECT (SELECT {n} FROM {rows}) - (SELECT {n} FROM {rows} AND {among})").format(
            n=number, rows=self.memories_sql, among=self.among_keys()
        )
        found = connection.execute(query, {"keys": list(without)}).fetchone()
        assert found is not None
        return int(found[0])

    def iter_stamps(self, connection: Connection[Any]) -> Iterator[tuple[str, str]]:
        """Yield key and stamp of every memory, in one scan."""
        query = sql.SQL("SELECT {}, {} FROM {}").format(self.key_sql, self.stamp_sql, self.memories_sql)
        with connection.cursor("consolidation_stamps") as cursor:
            cursor.itersize = _FETCH_ROWS * 10
            yield from cursor.execute(query)

    def find_shared_keys(self, connection: Connection[Any], keys: Sequence[str] | None = None) -> dict[str, int]:
        """Return those of ``keys``, or of all, that several memories have, with their number."""
        if has_unique_key(connection, self.mapping):
            return {}
        query = sql.SQL("SELECT {key}, count(*) FROM {memories} AND {chosen} GROUP BY 1 HAVING count(*) > 1").format(
            key=self.key_sql,
            memories=self.memories_sql,
            chosen=sql.SQL("true") if keys is None else self.among_keys(),
        )
        return dict(connection.execute(query, {"keys": None if keys is None else list(keys)}).fetchall())

    def sample_rows(self, connection: Connection[Any], count: int) -> list[SourceRow]:
        """Return up to ``count`` memories that have a vector, by key."""
        return list(islice((row for row in self.iter_rows(connection, vectors=True) if row.vector is not None), count))

    def iter_rows(
        self, connection: Connection[Any], keys: Sequence[str] | None = None, *, vectors: bool = False
    ) -> Iterator[SourceRow]:
        """Yield the memories with ``keys``, or all.

        Args:
            vectors: Read their vectors too.
        """
        query = sql.SQL(
            "SELECT {key} AS key, {stamp} AS stamp, {text} AS text, {scope} AS scope, {created} AS created, "
            "{updated} AS updated, {metadata} AS metadata, {vector} AS vector FROM {memories} AND {chosen}"
        ).format(
            key=self.key_sql,
            stamp=self.stamp_sql,
            text=self.mapping.text.as_text(),
            scope=self._scope_sql,
            created=_as_text_or_null(self.mapping.created),
            updated=_as_text_or_null(self.mapping.updated),
            metadata=self._metadata_sql,
            vector=self._vector_sql(vectors),
            memories=self.memories_sql,
            chosen=sql.SQL("true") if keys is None else self.among_keys(),
        )
        with connection.cursor("consolidation_rows", row_factory=class_row(SourceRow)) as cursor:
            cursor.itersize = _FETCH_ROWS
            yield from cursor.execute(query, {"keys": None if keys is None else list(keys)})

    def lock(self, connection: Connection[Any], keys: Sequence[str]) -> dict[str, str]:
        """Lock the memories with ``keys`` until the transaction ends; return the stamps of those that exist."""
        query = sql.SQL("SELECT {}, {} FROM {} AND {} ORDER BY {} FOR UPDATE").format(
            self.key_sql,
            self.stamp_sql,
            self.memories_sql,
            self.among_keys(),
            sql.SQL(", ").join(sql.Identifier("t", name) for name in self.mapping.key),
        )
        return dict(connection.execute(query, {"keys": list(keys)}).fetchall())

    def find_present(self, connection: Connection[Any], keys: Sequence[str]) -> set[str]:
        """Return those of ``keys`` that exist in the table."""
        query = sql.SQL("SELECT {} FROM {} t WHERE {}").format(
            self.key_sql, self.mapping.identifier(), self.among_keys()
        )
        return {key for (key,) in connection.execute(query, {"keys": list(keys)})}

    @property
    def names(self) -> list[str]:
        """Names of the mapped table, its parts and tables of links."""
        return [self.mapping.table, *self.mapping.other_tables]

    def count_rows(self, connection: Connection[Any], name: str, key: Sequence[str], keys: Sequence[str]) -> int:
        """Return the number of rows of the mapped table or a part, whose columns ``key`` are among ``keys``."""
        query = sql.SQL("SELECT count(*) FROM {} t WHERE {}").format(table_identifier(name), self.among_keys(key))
        found = connection.execute(query, {"keys": list(keys)}).fetchone()
        assert found is not None
        return int(found[0])

    def find_links(
        self, connection: Connection[Any], links: Links, keys: Sequence[str]
    ) -> list[tuple[str, str, list[str]]]:
        """Return the rows of a table of links that link one of ``keys``, locked: key, row as text, and array."""
        query = sql.SQL(
            "SELECT {key}, t::text, {keys} FROM {table} t WHERE {keys} ?| %(keys)s ORDER BY 1 FOR UPDATE"
        ).format(key=key_sql(links.key), keys=links.keys.as_json(), table=table_identifier(links.table))
        return connection.execute(query, {"keys": list(keys)}).fetchall()

    def list_keys_by_scope(
        self, connection: Connection[Any], max_rows: int
    ) -> Iterator[tuple[dict[str, str], list[str]]]:
        """Yield scope and keys of the rows of every scope that has up to ``max_rows``, in one scan."""
        query = sql.SQL("SELECT {} AS scope, array_agg({}) FROM {} t WHERE {} GROUP BY 1 HAVING count(*) <= {}").format(
            self._scope_sql, self.key_sql, self.mapping.identifier(), self.has_key_sql, sql.Literal(max_rows)
        )
        yield from connection.execute(query)

    def find_nearest(
        self,
        connection: Connection[Any],
        vector: str,
        scope: Mapping[str, str],
        limit: int,
        *,
        keys: Sequence[str] | None = None,
    ) -> list[str]:
        """Return the keys that the store's own search by meaning would show, nearest first.

        Args:
            vector: As Postgres text.
            scope: Values of the scope fields; others are not searched.
            keys: Those of the rows of the scope, if they are known: all others are left out without being read.

        Raises:
            UsageError: The store has no vectors.
        """
        place = self.mapping.vector
        if place is None:
            raise UsageError(f"{self.mapping.table} has no vectors, so its own search cannot be repeated")
        table = place.part or self.mapping.table
        alias = "t" if place.part is None else "v"
        type_ = self.columns_of(table)[place.column].type
        joined: sql.Composable = sql.SQL("")
        if place.part is not None:
            joined = sql.SQL("JOIN {} v ON {}").format(table_identifier(place.part), self._same_key(place.part))
        walls: list[sql.Composable] = [
            sql.SQL("{} IS NOT DISTINCT FROM {}").format(each.as_text(), sql.Literal(scope.get(name)))
            for name, each in self.mapping.scope.items()
        ]
        if keys is not None:
            walls = [self.among_keys()]
        query = sql.SQL("SELECT {} FROM {} t {} WHERE {} ORDER BY {} {} %(vector)s::{} LIMIT %(limit)s").format(
            self.key_sql,
            self.mapping.identifier(),
            joined,
            sql.SQL(" AND ").join([*walls, self.has_key_sql]),
            sql.Identifier(alias, place.column),
            sql.SQL(place.operator),
            sql.SQL(type_),
        )
        bound = {"vector": vector, "limit": limit, "keys": None if keys is None else list(keys)}
        return [key for (key,) in connection.execute(query, bound)]

    def count_scopes(self, connection: Connection[Any]) -> list[tuple[dict[str, str], int]]:
        """Return scope and number of memories of every scope, largest first."""
        query = sql.SQL("SELECT {} AS scope, count(*) FROM {} GROUP BY 1 ORDER BY 2 DESC, 1::text").format(
            self._scope_sql, self.memories_sql
        )
        return list(connection.execute(query).fetchall())


def same_table(connection: Connection[Any], one: str, other: str) -> bool:
    """Return True if two names, with or without their schema, are of one table."""
    names = [table_identifier(name).as_string(connection) for name in (one, other)]
    found = connection.execute("SELECT to_regclass(%s) = to_regclass(%s)", names).fetchone()
    return found == (True,)


def key_sql(columns: Sequence[str]) -> sql.Composable:
    """Return SQL of the key of row ``t`` as text: the value of one column, or a JSON array of several."""
    names = [sql.Identifier("t", name) for name in columns]
    if len(names) == 1:
        return sql.SQL("{}::text").format(names[0])
    return sql.SQL("jsonb_build_array({})::text").format(sql.SQL(", ").join(names))


def _as_text_or_null(field: Field | None) -> sql.Composable:
    return sql.SQL("NULL::text") if field is None else field.as_text()


def _check_present(table: str, columns: Mapping[str, Column], wanted: Sequence[str]) -> None:
    missing = [name for name in dict.fromkeys(wanted) if name not in columns]
    if missing:
        raise UsageError(f"table {table} has no column {', '.join(missing)}: it has {', '.join(columns)}")


def parse_time(value: str | None) -> datetime | None:
    """Return a store's time: ISO format, or seconds since 1970; None if it cannot be read."""
    if not value:
        return None
    try:
        if value.replace(".", "", 1).isdigit():
            return datetime.fromtimestamp(float(value), UTC)
        found = datetime.fromisoformat(value)
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
