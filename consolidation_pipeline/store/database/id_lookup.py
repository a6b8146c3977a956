"""Ids of rows that begin with given digits."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.sql import compose

_FIND_ROW_IDS = "SELECT id FROM consolidation./* table */ WHERE id BETWEEN :first AND :last ORDER BY id LIMIT 2"


def find_row_ids(connection: Connection, table: str, first: UUID, last: UUID) -> Sequence[UUID]:
    """Return the ids of ``table`` from ``first`` to ``last``, up to two."""
    return connection.scalars(text(compose(_FIND_ROW_IDS, table=table)), {"first": first, "last": last}).all()
