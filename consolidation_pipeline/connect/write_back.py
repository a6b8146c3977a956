"""Writing of a group into the table it came from, and the exact inverse.

In one transaction of the store's database the sources are deleted, a successor is kept or inserted, links are changed
to it, and the image of every changed row goes into the sidecar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import md5
from math import inf
from typing import Any
from uuid import UUID, uuid4

from psycopg import Connection, sql
from psycopg.types.json import Jsonb

from consolidation_pipeline.connect.mapping import Field, Fill, Lifetime, Links, table_identifier
from consolidation_pipeline.connect.references import check_unreferenced
from consolidation_pipeline.connect.row_forms import describe_columns
from consolidation_pipeline.connect.row_security import explain_row_security
from consolidation_pipeline.connect.source_table import SourceTable, key_sql
from consolidation_pipeline.connect.store import GroupWrite, Receipt, check_stamps
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import ConflictError, UsageError

# End of a sentence on rows that a statement did not delete or change.
_STAYED = "would stay: a trigger, rule or policy of the table overrides the change"


def write_group(connection: Connection[Any], table: SourceTable, source: str, group: GroupWrite) -> Receipt:
    """Write a group into its store, in the transaction of ``connection``.

    Raises:
        ConflictError: A source changed or is gone since the merge was decided, rows of other tables would go with it,
            or a trigger, rule or policy of the store kept a change from being made; the transaction has to be rolled
            back.
        UsageError: A new row is asked for where the mapping cannot insert, or a kept key is not of the group.
    """
    _check_group(table, group)
    stamps = table.lock(connection, list(group.stamps))
    _check_unlocked(connection, table, group, stamps)
    check_stamps(group, stamps)
    hidden = sorted(key for key in group.stamps if key != group.keep)
    check_unreferenced(connection, table, hidden)
    if group.keep is not None:
        _check_lifetime(connection, table, group.keep, hidden)
    images = _Images(connection, group.write_id)
    connection.execute(
        "INSERT INTO consolidation_sidecar.writes (id, source, group_id, receipt) VALUES (%s, %s, %s, '{}')",
        [images.write_id, source, group.group_id],
    )
    template = _read_template(connection, table, list(group.stamps)) if group.keep is None else None
    for part in table.mapping.parts:
        present = table.count_rows(connection, part.table, part.key, hidden)
        images.delete(table, part.table, part.key, hidden, present=present)
    images.delete(table, table.mapping.table, table.mapping.key, hidden, present=len(hidden))
    successor = group.keep
    if template is not None:
        successor = _insert_successor(images, table, group, template)
    assert successor is not None
    changed = sum(_relink(images, table, links, hidden, successor) for links in table.mapping.links)
    receipt = Receipt(images.write_id, successor, group.keep is None, hidden, changed)
    connection.execute(
        "UPDATE consolidation_sidecar.writes SET receipt = %s WHERE id = %s",
        [
            Jsonb(
                {
                    "successor": successor,
                    "inserted": receipt.inserted,
                    "hidden": hidden,
                    "links": changed,
                    "columns": describe_columns(connection, table.names),
                }
            ),
            images.write_id,
        ],
    )
    return receipt


def _check_group(table: SourceTable, group: GroupWrite) -> None:
    if group.keep is not None and group.keep not in group.stamps:
        raise UsageError(f"the kept row {group.keep} is not of the group")
    if group.keep is None and not table.mapping.can_insert:
        raise UsageError(f"no new rows are written to {table.mapping.table}: keep one of the sources")
    if group.keep is None and not group.text:
        raise UsageError("the new row of the group has no text")
    if group.keep is None and table.mapping.vector is not None and group.vector is None:
        raise UsageError("the new row of the group has no vector, and rows of this store have one")


def _check_unlocked(
    connection: Connection[Any], table: SourceTable, group: GroupWrite, locked: Mapping[str, str]
) -> None:
    """Raise ConflictError if rows of the group are not among the locked ones for the sake of row-level security."""
    missing = [key for key in group.stamps if key not in locked]
    told = explain_row_security(connection, table.names) if missing else None
    if told is None:
        return
    visible = table.find_present(connection, missing)
    what = "may not be changed by this user" if visible else "are gone in the store, or hidden from this user"
    keys = tuple(key for key in missing if key in visible) or tuple(missing)
    raise ConflictError(f"{len(keys)} of its {len(group.stamps)} rows {what}: {told}", keys)


def _check_lifetime(connection: Connection[Any], table: SourceTable, keep: str, hidden: Sequence[str]) -> None:
    """Raise ConflictError if the row that stays is deleted by its program sooner than one of the others."""
    if table.mapping.lifetime is None:
        return
    length = sql.Identifier("t", table.mapping.lifetime.length)
    lengths = dict(
        connection.execute(
            sql.SQL("SELECT {}, coalesce({}::float8, 'infinity') FROM {} t WHERE {}").format(
                table.key_sql, length, table.mapping.identifier(), table.among_keys()
            ),
            {"keys": [keep, *hidden]},
        ).fetchall()
    )
    longer = tuple(key for key in hidden if lengths[key] > lengths[keep])
    if longer:
        raise ConflictError(
            f"the row that stays has a shorter {table.mapping.lifetime.length} than {counted(len(longer), 'row')} that "
            "would be hidden",
            longer,
        )


class _Images:
    """Images of the rows that one write changes."""

    def __init__(self, connection: Connection[Any], write_id: UUID) -> None:
        self.connection = connection
        self.write_id = write_id
        self._position = 0

    def add(self, action: str, table: str, key: str, before: str | None, after: str | None) -> None:
        self.connection.execute(
            "INSERT INTO consolidation_sidecar.images (write_id, position, action, table_name, key, before, after) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [self.write_id, self._position, action, table, key, before, after],
        )
        self._position += 1

    def delete(self, table: SourceTable, name: str, key: Sequence[str], keys: Sequence[str], *, present: int) -> None:
        """Delete the rows of table ``name`` whose columns ``key`` are among ``keys``, of which there are ``present``.

        Raises:
            ConflictError: Not each of them is gone, with an image.
        """
        rows = self.connection.execute(
            sql.SQL("DELETE FROM {} t WHERE {} RETURNING {}, t::text").format(
                table_identifier(name), table.among_keys(key), key_sql(key)
            ),
            {"keys": list(keys)},
        ).fetchall()
        check_gone(self.connection, table, name, key, keys, kept=present - len(rows))
        for row_key, image in sorted(rows):
            self.add("deleted", name, row_key, image, None)

    def insert(self, name: str, columns: Sequence[str], key: Sequence[str], row: Mapping[str, Any]) -> str:
        """Insert a row, given as JSON; return its key. Raise ConflictError if the store does not take it."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        inserted = self.connection.execute(
            sql.SQL(
                "INSERT INTO {table} AS t ({names}) SELECT {names} FROM jsonb_populate_record(null::{table}, %s) "
                "RETURNING {key}, t::text"
            ).format(table=table_identifier(name), names=names, key=key_sql(key)),
            [Jsonb(row)],
        ).fetchone()
        if inserted is None:
            raise ConflictError(f"{name} takes no new row: a trigger of it drops what is inserted")
        self.add("inserted", name, inserted[0], None, inserted[1])
        return str(inserted[0])


def _read_template(connection: Connection[Any], table: SourceTable, keys: Sequence[str]) -> dict[str, Any]:
    """Return as JSON the rows that the successor takes its other values from: ``rows`` oldest first, ``parts``."""
    mapping = table.mapping
    order = sql.SQL("NULL") if mapping.created is None else mapping.created.as_text()
    rows = connection.execute(
        sql.SQL("SELECT to_jsonb(t) FROM {} t WHERE {} ORDER BY {}, {}").format(
            mapping.identifier(), table.among_keys(), order, table.key_sql
        ),
        {"keys": list(keys)},
    ).fetchall()
    parts = {}
    for part in mapping.parts:
        found = connection.execute(
            sql.SQL("SELECT to_jsonb(t) FROM {} t WHERE {} ORDER BY t::text").format(
                table_identifier(part.table), table.among_keys(part.key)
            ),
            {"keys": list(keys)},
        ).fetchall()
        parts[part.table] = [row for (row,) in found]
    return {"rows": [row for (row,) in rows], "parts": parts}


def _insert_successor(images: _Images, table: SourceTable, group: GroupWrite, template: dict[str, Any]) -> str:
    """Insert the new row: the oldest source with another key, text, vector and what its library computes from them."""
    mapping = table.mapping
    rows: list[dict[str, Any]] = template["rows"]
    row = json.loads(json.dumps(rows[0]))
    new_id = str(uuid4())
    row[mapping.key[-1]] = new_id
    _put(row, (mapping.text.column, *mapping.text.path), group.text)
    if mapping.lifetime is not None:
        row |= _find_longest(rows, mapping.lifetime)
    for fill in mapping.fills:
        _put(row, (fill.field.column, *fill.field.path), _compute(fill, mapping.text, group.text or "", rows))
    vector = mapping.vector
    if vector is not None and vector.part is None:
        row[vector.column] = group.vector
    key = images.insert(mapping.table, table.writable_columns(mapping.table), mapping.key, row)
    for part in mapping.parts:
        if vector is None or vector.part != part.table:  # It tells where the sources came from.
            continue
        found = _rows_of_part(template["parts"][part.table], rows[0], mapping.key, part.key)
        texts = [each for each in found if vector.field is None or each[vector.field[0]] == vector.field[1]]
        for theirs in found:  # Other fields than the text are those of the oldest source, and so are their vectors.
            own = group.vector if theirs in (texts or found) else theirs[vector.column]
            copied = {**theirs, part.key[-1]: new_id, vector.column: own}
            images.insert(part.table, table.writable_columns(part.table), part.key, copied)
    return key


def _find_longest(rows: Sequence[Mapping[str, Any]], lifetime: Lifetime) -> dict[str, Any]:
    """Return the longest lifetime of the sources, with its latest end."""

    def rank(row: Mapping[str, Any]) -> tuple[float, str]:
        length = row[lifetime.length]
        return (inf if length is None else float(length), row[lifetime.end] or "")

    longest = max(rows, key=rank)
    return {name: longest[name] for name in (lifetime.length, lifetime.end)}


def _rows_of_part(
    rows: Sequence[dict[str, Any]], main: Mapping[str, Any], key: Sequence[str], part_key: Sequence[str]
) -> list[dict[str, Any]]:
    wanted = [str(main[name]) for name in key]
    return [row for row in rows if [str(row[name]) for name in part_key] == wanted]


def _put(row: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Set the value at ``path``; missing objects on the way are made."""
    *parents, last = path
    place = row
    for name in parents:
        if not isinstance(place.get(name), dict):
            place[name] = {}
        place = place[name]
    place[last] = value


def _compute(fill: Fill, body: Field, text: str, rows: Sequence[Mapping[str, Any]]) -> object:
    """Return the value of a field as the store's own library would compute it for a new memory.

    ``words`` follows the habit of the store: the text itself, if that is what the sources have.
    """
    now = datetime.now(UTC)
    if fill.rule == "md5":
        return md5(text.encode(), usedforsecurity=False).hexdigest()
    if fill.rule == "now":
        return now.isoformat()
    if fill.rule == "now_seconds":
        return int(now.timestamp())
    if fill.rule == "words":
        found = [_get(row, (fill.field.column, *fill.field.path)) for row in rows]
        if all(value == _get(row, (body.column, *body.path)) for value, row in zip(found, rows, strict=True)):
            return text
        return " ".join(dict.fromkeys(word for each in found if isinstance(each, str) for word in each.split()))
    raise ValueError(fill.rule)


def _get(row: Mapping[str, Any], path: Sequence[str]) -> object:
    value: Any = row
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _relink(images: _Images, table: SourceTable, links: Links, hidden: Sequence[str], successor: str) -> int:
    """Replace hidden keys by the successor's in all arrays of a table of links; return the number of changed rows."""
    rows = table.find_links(images.connection, links, hidden)
    gone = set(hidden)
    arrays = {key: list(dict.fromkeys(successor if each in gone else each for each in keys)) for key, _, keys in rows}
    after = set_links(images.connection, table, links, arrays)
    if len(after) < len(arrays):
        raise ConflictError(f"{counted(len(arrays) - len(after), 'row')} of {links.table} {_STAYED}")
    for key, before, _ in rows:
        images.add("updated", links.table, key, before, after[key])
    return len(rows)


def check_gone(
    connection: Connection[Any],
    table: SourceTable,
    name: str,
    key: Sequence[str],
    keys: Sequence[str],
    *,
    kept: int = 0,
) -> None:
    """Raise ConflictError if rows of table ``name`` are there that were deleted.

    Args:
        kept: Number of rows that the statement did not delete.
    """
    kept = max(kept, table.count_rows(connection, name, key, keys))
    if kept:
        told = explain_row_security(connection, [name])
        raise ConflictError(f"{counted(kept, 'row')} of {name} {_STAYED}" + (f"; {told}" if told else ""))


def set_links(
    connection: Connection[Any], table: SourceTable, links: Links, arrays: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Write arrays of linked keys by the key of their row; return the changed rows as text."""
    column = links.keys.column
    value: sql.Composable = sql.SQL("a.keys")
    if links.keys.path:
        value = sql.SQL("jsonb_set(to_jsonb(t.{}), {}, a.keys)").format(
            sql.Identifier(column), sql.Literal(list(links.keys.path))
        )
    rows = connection.execute(
        sql.SQL(
            "UPDATE {table} t SET {column} = ({value})::{type} "
            "FROM jsonb_to_recordset(%(arrays)s) a(key text, keys jsonb) WHERE {key} = a.key RETURNING a.key, t::text"
        ).format(
            table=table_identifier(links.table),
            column=sql.Identifier(column),
            value=value,
            type=sql.SQL(table.columns_of(links.table)[column].type),
            key=key_sql(links.key),
        ),
        {"arrays": Jsonb([{"key": key, "keys": list(keys)} for key, keys in arrays.items()])},
    )
    return dict(rows.fetchall())
