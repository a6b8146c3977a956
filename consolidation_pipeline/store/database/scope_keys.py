"""SQL of scope keys. See ``consolidation_pipeline.scopes`` for what a scope is.

The key of a raw memory follows from its row and the project's option, so it is computed when the row is read. A stored
key would have to be rewritten in every row when the option changes, and would be wrong until then. A consolidated
memory stores the key of its sources, as these are many rows.
"""

from __future__ import annotations

from consolidation_pipeline.scopes import metadata_key, parse_scope

# How the reason begins for which a run archives what was made of several scopes.
DISSOLVED = "scope: "
# How the reason begins for which a person takes memories, and what was derived from them, out of use. ``REVISED``: of
# what was derived from a memory whose text was edited.
QUARANTINED = "quarantine: "
DELETED = "deleted: "
REVISED = "edited: "
# How the reason begins for which a run archives a pattern: newer memories replaced what it told.
REPLACED = "replaced: "


def is_out_of_use(reason: str = "archive_reason") -> str:
    """Return SQL that is true for a memory that is in quarantine, deleted, or derived from one of these or an edit.

    ``reason``: SQL of its ``archive_reason``.
    """
    return f"coalesce({reason} ^@ ANY(ARRAY['{QUARANTINED}', '{DELETED}', '{REVISED}']), false)"


def raw_scope_key(option: str, row: str = "t") -> str:
    """Return SQL of the scope key of the raw memory ``row``: as ``make_scope_key``; null for a project without walls.

    Args:
        option: The project's option ``scope``, which is checked: its fields are part of the SQL.
        row: Alias of the row.
    """
    values = [_field_value(field, row) for field in parse_scope(option)]
    if len(values) <= 1:
        return values[0] if values else "NULL::text"
    escaped = [f"replace(replace({value}, '~', '~0'), '/', '~1')" for value in values]
    # Not by concat, which an index may not hold.
    joined = " || '/' || ".join(escaped)
    return f"CASE WHEN {' || '.join(values)} = '' THEN '' ELSE {joined} END"


def _field_value(field: str, row: str) -> str:
    key = metadata_key(field)
    return f"coalesce({row}.{field}, '')" if key is None else f"coalesce({row}.metadata ->> '{key}', '')"


def derived_scope_key(option: str) -> str:
    """Return SQL of the scope key of the consolidated memory ``t``; null for a project without walls.

    It is taken from the raw memories, as the stored key is that of the option of the last run.
    """
    if not has_walls(option):
        return "NULL::text"
    return _of_sources(f"min({raw_scope_key(option, 'source')})", "t")


def is_dissolved(reason: str) -> str:
    """Return SQL that is true if a row was archived as its sources are no longer used together, or were replaced.

    A run may derive such a row again, from other memories. ``reason``: SQL of its ``archive_reason``.
    """
    return f"(coalesce({reason} ^@ ANY(ARRAY['{DISSOLVED}', '{REPLACED}']), false) OR {is_out_of_use(reason)})"


def scope_id(key: str) -> str:
    """Return SQL of a UUID that is equal for equal scope keys, given the SQL of a key; zeros for an empty or null one.

    A column of fixed width, as ``load_columns`` needs.
    """
    return f"coalesce(md5(nullif({key}, ''))::uuid, '00000000-0000-0000-0000-000000000000')"


def crosses_scopes(option: str, row: str) -> str:
    """Return SQL that is true if the consolidated memory ``row`` was made of raw memories of several scopes.

    A run dissolves such memories before it compares anything.
    """
    if not has_walls(option):
        return "false"
    key = raw_scope_key(option, "source")
    return f"coalesce({_of_sources(f'min({key}) <> max({key})', row)}, false)"


def source_scope(option: str, row: str) -> str:
    """Return SQL of what to join with the consolidated memory ``row``: ``scope``, computed in one look at its sources.

    ``scope.key`` is its ``derived_scope_key``, ``scope.crosses`` is true if it ``crosses_scopes``.
    """
    if not has_walls(option):
        return "(SELECT NULL::text AS key, false AS crosses) scope"
    key = raw_scope_key(option, "source")
    columns = f"min({key}) AS key, coalesce(min({key}) <> max({key}), false) AS crosses"
    return f"LATERAL {_of_sources(columns, row)} scope"


def _of_sources(expression: str, row: str) -> str:
    """Return SQL of an aggregate ``expression`` over the raw memories ``source`` of the consolidated memory ``row``."""
    return (
        f"(SELECT {expression} FROM consolidation.task_memories source WHERE source.id = ANY({row}.source_memory_ids))"
    )


def has_walls(option: str) -> bool:
    """Return True if memories of different scopes are kept apart."""
    return bool(parse_scope(option))
