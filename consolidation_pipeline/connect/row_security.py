"""Row-level security of a store: rows that are there, and that this user does not see or may not change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import Connection

from consolidation_pipeline.connect.mapping import table_identifier

_FIND_ACTIVE = """
    SELECT to_regclass(name)::text, quote_ident(current_user) FROM unnest(%s::text[]) WITH ORDINALITY t(name, at)
    WHERE row_security_active(to_regclass(name)) ORDER BY at LIMIT 1
"""


def explain_row_security(connection: Connection[Any], tables: Iterable[str]) -> str | None:
    """Return which table may hide rows from this user, or keep them from its changes, and what grants them.

    None if no row-level security of ``tables`` applies to this user.
    """
    names = [table_identifier(name).as_string(connection) for name in tables]
    found = connection.execute(_FIND_ACTIVE, [names]).fetchone()
    if found is None:
        return None
    table, user = found
    return (
        f"row-level security of {table} applies to user {user}; to grant all rows: "
        f"CREATE POLICY consolidation ON {table} TO {user} USING (true)"
    )
