"""Exact inverse of what was written into a store, from the images of the sidecar alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg import Connection, Rollback, sql
from psycopg.types.json import Jsonb

from consolidation_pipeline.connect.mapping import Links, table_identifier
from consolidation_pipeline.connect.references import find_references
from consolidation_pipeline.connect.restored_rows import Differences, compare_restored, load_rows
from consolidation_pipeline.connect.row_forms import RowForm, find_forms
from consolidation_pipeline.connect.row_security import explain_row_security
from consolidation_pipeline.connect.source_table import SourceTable, key_sql
from consolidation_pipeline.connect.store import Conflict
from consolidation_pipeline.connect.write_back import set_links

_DELETED, _GONE = "the kept row was deleted", "the new row is gone"


@dataclass(frozen=True)
class _Image:
    action: str
    table: str
    key: str
    before: str | None
    after: str | None


def read_receipts(connection: Connection[Any], write_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return what committed writes did, by id: successor, inserted, hidden, links, and ``undone``.

    Those of undone writes have ``differences``: in which columns rows came back with other values.
    """
    if not write_ids:
        return {}
    rows = connection.execute(
        "SELECT id, receipt, undone_at IS NOT NULL FROM consolidation_sidecar.writes WHERE id = ANY(%s)",
        [list(write_ids)],
    )
    return {id_: {**receipt, "undone": undone} for id_, receipt, undone in rows}


def find_undone(connection: Connection[Any], write_ids: Sequence[UUID]) -> list[UUID]:
    """Return those of committed writes that are undone."""
    statement = "SELECT id FROM consolidation_sidecar.writes WHERE id = ANY(%s) AND undone_at IS NOT NULL"
    return [id_ for (id_,) in connection.execute(statement, [list(write_ids)])]


def find_images(connection: Connection[Any], table: SourceTable, write_ids: Sequence[UUID]) -> set[str]:
    """Return the keys of the hidden rows of committed writes whose images are there."""
    rows = connection.execute(
        "SELECT DISTINCT key FROM consolidation_sidecar.images "
        "WHERE write_id = ANY(%s) AND action = 'deleted' AND table_name <> ALL(%s)",
        [list(write_ids), list(table.mapping.other_tables)],
    )
    return {key for (key,) in rows}


def undo_write(connection: Connection[Any], table: SourceTable, write_id: UUID) -> list[Conflict]:
    """Put back what one write changed, in the transaction of ``connection``.

    Rows come back byte for byte, but for columns that the table or a trigger sets: the receipt tells which differ. An
    array of links that was changed since keeps these changes. A new row goes if nothing changed in it but bookkeeping.

    Returns:
        What stands in the way; if there is anything, nothing was changed. Empty if the write is undone, also earlier.
    """
    found = connection.execute(
        "SELECT receipt FROM consolidation_sidecar.writes WHERE id = %s AND undone_at IS NULL FOR UPDATE", [write_id]
    ).fetchone()
    if found is None:
        return []
    images = [_Image(*row) for row in _load_images(connection, write_id)]
    touched = dict.fromkeys(each.table for each in images)
    forms, conflicts = find_forms(connection, touched, found[0].get("columns", {}))
    if conflicts:
        return conflicts
    images = [_follow_bookkeeping(connection, table, each, forms) for each in images]
    conflicts = _find_conflicts(connection, table, images, forms)
    others = table.mapping.other_tables
    lost = {*found[0]["hidden"]} - {one.key for one in images if one.action == "deleted" and one.table not in others}
    conflicts += [Conflict(table.mapping.table, key, "the image of a hidden row is gone") for key in sorted(lost)]
    successor = found[0]["successor"]
    if found[0]["inserted"]:
        conflicts += [
            Conflict(other, successor, "rows refer to the new row, and would be deleted or emptied with it")
            for other in find_references(connection, table, [successor])
        ]
    elif successor is not None and not table.find_present(connection, [successor]):
        conflicts.append(Conflict(table.mapping.table, successor, _DELETED))
    if conflicts:
        return _explain_unseen(connection, table, conflicts)
    with connection.transaction() as savepoint:
        _delete_inserted(connection, table, [each for each in images if each.action == "inserted"], forms)
        _restore_deleted(connection, [each for each in reversed(images) if each.action == "deleted"], forms)
        restored = [each for each in images if each.action != "updated"]
        for links in table.mapping.links:
            updated = [each for each in images if each.action == "updated" and each.table == links.table]
            if updated:
                restored += _restore_links(connection, table, links, updated, forms[links.table], successor=successor)
        conflicts, differences = _compare(connection, table, restored, forms)
        if conflicts:
            raise Rollback(savepoint)
        connection.execute(
            "UPDATE consolidation_sidecar.writes SET undone_at = now(), receipt = receipt || %s WHERE id = %s",
            [Jsonb({"differences": differences}), write_id],
        )
    return conflicts


def _explain_unseen(connection: Connection[Any], table: SourceTable, conflicts: Sequence[Conflict]) -> list[Conflict]:
    """Add to rows that are gone that this user may not see them, if row-level security applies to it."""
    told = explain_row_security(connection, table.names)
    if told is None:
        return list(conflicts)
    unseen = {reason: f"{reason}, or hidden from this user: {told}" for reason in (_DELETED, _GONE)}
    return [replace(one, reason=unseen.get(one.reason, one.reason)) for one in conflicts]


def set_apart(connection: Connection[Any], write_id: UUID, apart: UUID, keys: Sequence[str]) -> None:
    """Make a new write of the hidden rows ``keys`` of a write. It has no successor."""
    bound = {"write": write_id, "apart": apart, "keys": list(keys)}
    connection.execute(
        """
        INSERT INTO consolidation_sidecar.writes (id, source, group_id, receipt, written_at)
        SELECT %(apart)s, source, group_id,
            receipt || jsonb_build_object('successor', NULL, 'inserted', false, 'links', 0, 'hidden', %(keys)s::text[]),
            written_at
        FROM consolidation_sidecar.writes WHERE id = %(write)s
        """,
        bound,
    )
    connection.execute(
        """
        UPDATE consolidation_sidecar.images SET write_id = %(apart)s
        WHERE write_id = %(write)s AND action = 'deleted' AND key = ANY(%(keys)s)
        """,
        bound,
    )
    connection.execute(
        """
        UPDATE consolidation_sidecar.writes
        SET receipt = jsonb_set(receipt, '{hidden}', (receipt -> 'hidden') - %(keys)s::text[]) WHERE id = %(write)s
        """,
        bound,
    )


def _compare(
    connection: Connection[Any], table: SourceTable, images: Sequence[_Image], forms: Mapping[str, RowForm]
) -> tuple[list[Conflict], Differences]:
    """Return what did not come back or go, and in which columns rows came back with other values."""
    conflicts: list[Conflict] = []
    differences: Differences = {}
    for name in dict.fromkeys(each.table for each in images):
        wanted: dict[str, list[str]] = {}
        for image in images:
            if image.table == name and image.before is not None:
                wanted.setdefault(image.key, []).append(image.before)
        removed = {each.key for each in images if each.table == name and each.action == "inserted"} - wanted.keys()
        found, columns = compare_restored(
            connection, table, name, _key_columns(table, name), forms[name], wanted, removed
        )
        conflicts += found
        if columns:
            differences[name] = columns
    return conflicts, differences


def _load_images(connection: Connection[Any], write_id: UUID) -> list[tuple[Any, ...]]:
    return connection.execute(
        "SELECT action, table_name, key, before, after FROM consolidation_sidecar.images WHERE write_id = %s "
        "ORDER BY position",
        [write_id],
    ).fetchall()


def _find_conflicts(
    connection: Connection[Any], table: SourceTable, images: Sequence[_Image], forms: Mapping[str, RowForm]
) -> list[Conflict]:
    conflicts = []
    for name in dict.fromkeys(each.table for each in images if each.action != "updated"):
        key = _key_columns(table, name)
        mine = [each for each in images if each.table == name]
        now = load_rows(connection, table, name, key, {each.key for each in mine}, forms[name])
        for image in mine:
            rows = now.get(image.key, [])
            if image.action == "deleted" and rows and not _is_own(rows, mine):
                conflicts.append(Conflict(name, image.key, "a hidden row was written again", is_taken=True))
            elif image.action == "inserted" and not rows:
                conflicts.append(Conflict(name, image.key, _GONE))
            elif image.action == "inserted" and image.after not in rows:
                changed = min((_list_changed(connection, table, image, row, forms[name]) for row in rows), key=len)
                conflicts.append(Conflict(name, image.key, f"the new row was changed in {', '.join(changed)}"))
    return conflicts


def _follow_bookkeeping(
    connection: Connection[Any], table: SourceTable, image: _Image, forms: Mapping[str, RowForm]
) -> _Image:
    """Return the image of a new row as the row is now, if nothing changed in it but bookkeeping."""
    if image.action != "inserted" or not table.mapping.find_bookkeeping(image.table):
        return image
    form, key = forms[image.table], _key_columns(table, image.table)
    rows = load_rows(connection, table, image.table, key, {image.key}, form).get(image.key, [])
    if image.after in rows:
        return image
    same = (row for row in rows if not _list_changed(connection, table, image, row, form))
    return replace(image, after=next(same, image.after))


def _list_changed(connection: Connection[Any], table: SourceTable, image: _Image, row: str, form: RowForm) -> list[str]:
    """Return the columns in which ``row`` differs from the image of a new row, but for bookkeeping."""
    paths = [[field.column, *field.path] for field in table.mapping.find_bookkeeping(image.table)]
    without = sql.SQL("").join(sql.SQL(" #- {}").format(sql.Literal(path)) for path in paths)
    found = connection.execute(
        sql.SQL(
            "SELECT key FROM jsonb_each(to_jsonb(%s::{type}){without}) i FULL JOIN "
            "jsonb_each(to_jsonb(%s::{type}){without}) r USING (key) WHERE i.value IS DISTINCT FROM r.value ORDER BY 1"
        ).format(type=form.type, without=without),
        [image.after, row],
    )
    return [column for (column,) in found]


def _is_own(rows: Sequence[str], images: Sequence[_Image]) -> bool:
    return all(any(each.after == row for each in images) for row in rows)


def _key_columns(table: SourceTable, name: str) -> tuple[str, ...]:
    if name == table.mapping.table:
        return table.mapping.key
    return table.mapping.other_tables[name]


def _delete_inserted(
    connection: Connection[Any], table: SourceTable, images: Sequence[_Image], forms: Mapping[str, RowForm]
) -> None:
    for image in reversed(images):
        connection.execute(
            sql.SQL("DELETE FROM {} t WHERE {} = %s AND {} = %s").format(
                table_identifier(image.table), key_sql(_key_columns(table, image.table)), forms[image.table].text
            ),
            [image.key, image.after],
        )


def _restore_deleted(connection: Connection[Any], images: Sequence[_Image], forms: Mapping[str, RowForm]) -> None:
    for image in images:
        form = forms[image.table]
        connection.execute(
            sql.SQL(
                "INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM (SELECT (%s::{type}).*) r"
            ).format(table=table_identifier(image.table), names=form.names, type=form.type),
            [image.before],
        )


def _restore_links(
    connection: Connection[Any],
    table: SourceTable,
    links: Links,
    images: Sequence[_Image],
    form: RowForm,
    *,
    successor: str,
) -> list[_Image]:
    """Put arrays of links back: as they were, or, if they were changed since, with the hidden keys added again.

    Several writes that changed one array may be undone in any order: when an array has again the keys that an image of
    it shows, it has them in the order of that image.

    Returns:
        The images of the rows that are as they were.
    """
    now = load_rows(connection, table, links.table, links.key, {each.key for each in images}, form)
    merged: dict[str, list[str]] = {}
    replaced = []
    for image in images:
        row = now.get(image.key, [None])[0]
        if row is None:  # The store removed it, with all that it linked.
            continue
        if row == image.after:
            _replace_row(connection, links, image, form)
            replaced.append(image)
            continue
        before, after, present = (
            _read_array(connection, links, each, form) for each in (image.before, image.after, row)
        )
        added = successor not in before
        merged[image.key] = [
            *(each for each in present if not (added and each == successor)),
            *(each for each in before if each not in after and each not in present),
        ]
    if not merged:
        return replaced
    # Images of other writes may be of other forms.
    for key, keys in merged.items() if form.is_current else ():
        merged[key] = _find_order(connection, links, key, keys)
    set_links(connection, table, links, merged)
    return replaced


def _find_order(connection: Connection[Any], links: Links, key: str, keys: list[str]) -> list[str]:
    """Return linked ``keys`` in the order of the first image of the row with ``key`` that shows just these."""
    shown = links.keys.as_json()
    found = connection.execute(
        sql.SQL(
            "SELECT {shown} FROM consolidation_sidecar.images i "
            "JOIN consolidation_sidecar.writes w ON w.id = i.write_id, LATERAL (SELECT (i.before::{table}).*) t "
            "WHERE i.table_name = %(table)s AND i.key = %(key)s AND i.action = 'updated' "
            "AND {shown} @> %(keys)s AND {shown} <@ %(keys)s AND jsonb_array_length({shown}) = %(count)s "
            "ORDER BY w.number LIMIT 1"
        ).format(shown=shown, table=table_identifier(links.table)),
        {"table": links.table, "key": key, "keys": Jsonb(keys), "count": len(keys)},
    ).fetchone()
    return keys if found is None else [str(each) for each in found[0]]


def _replace_row(connection: Connection[Any], links: Links, image: _Image, form: RowForm) -> None:
    connection.execute(
        sql.SQL(
            "UPDATE {table} t SET ({names}) = (SELECT {names} FROM (SELECT (%s::{type}).*) r) WHERE {key} = %s"
        ).format(table=table_identifier(links.table), names=form.names, type=form.type, key=key_sql(links.key)),
        [image.before, image.key],
    )


def _read_array(connection: Connection[Any], links: Links, image: str | None, form: RowForm) -> list[str]:
    row = connection.execute(
        sql.SQL("SELECT {} FROM (SELECT (%s::{}).*) t").format(links.keys.as_json(), form.type),
        [image],
    ).fetchone()
    value = None if row is None else row[0]
    return [str(each) for each in value] if isinstance(value, list) else []
