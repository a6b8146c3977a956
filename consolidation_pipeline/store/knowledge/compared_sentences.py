"""Sentences that were read and compared when a pattern, principle or summary was written, as hashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.scope_keys import is_out_of_use
from consolidation_pipeline.store.database.sql import compose

_LOAD = """
    SELECT memory_id, pairs FROM consolidation.compared_sentences
    WHERE project_id = :project AND asked_by = :asked_by AND memory_id = ANY(:ids)
"""


def load_compared_sentences(
    connection: Connection, project_id: UUID, ids: Iterable[UUID], asked_by: str
) -> dict[UUID, bytes]:
    """Return the packed pairs of patterns, principles and summaries, by id; not those that another program found."""
    rows = connection.execute(text(_LOAD), {"project": project_id, "asked_by": asked_by, "ids": list(ids)})
    return {row.memory_id: row.pairs for row in rows}


_REPLACE = """
    INSERT INTO consolidation.compared_sentences (project_id, memory_id, asked_by, pairs)
    SELECT :project, id, :asked_by, pairs
    FROM unnest(CAST(:ids AS uuid[]), CAST(:pairs AS bytea[])) AS given (id, pairs)
    ON CONFLICT (project_id, memory_id) DO UPDATE SET asked_by = excluded.asked_by, pairs = excluded.pairs
"""


def replace_compared_sentences(
    connection: Connection, project_id: UUID, asked_by: str, pairs: Mapping[UUID, bytes]
) -> None:
    """Store the packed pairs of patterns, principles and summaries, by id, in place of those before."""
    bound = {"project": project_id, "asked_by": asked_by, "ids": list(pairs), "pairs": list(pairs.values())}
    connection.execute(text(_REPLACE), bound)


# What is out of use may be written again.
_PRUNE = compose(
    """
    DELETE FROM consolidation.compared_sentences s WHERE project_id = :project AND NOT EXISTS (
        SELECT FROM consolidation.consolidated_memories c
        WHERE c.id = s.memory_id AND (c.retired_at IS NULL OR /* out_of_use */))
    """,
    out_of_use=is_out_of_use("c.archive_reason"),
)


def prune_compared_sentences(connection: Connection, project_id: UUID) -> None:
    """Delete the pairs of patterns, principles and summaries that are not written again."""
    connection.execute(text(_PRUNE), {"project": project_id})
