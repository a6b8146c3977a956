"""Active keys: the key by which only one consolidated memory of a project may be active at a time.

The key of a merged memory is its type, normalized text and scope; of a pattern or principle, its group; of a profile,
the person and scope. Summaries have none: any number may be active.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.engine import lock_until_commit
from consolidation_pipeline.store.database.scope_keys import source_scope
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.ledger.ledger_writer import reject_rows


def lock_active_keys(connection: Connection, project_ids: Iterable[UUID]) -> None:
    """Lock the active keys of the projects until the transaction ends: only its holder changes which rows are active.

    Call it before any row is locked, to avoid deadlocks. A search for duplicates after this sees all earlier changes.
    The ledger has the changes of a key in the order of commits, so that it can be undone newest first. A transaction
    that takes a key from one row and gives it to another must make both changes in one group, for the same reason.
    """
    for project_id in sorted(set(project_ids)):  # Sorted: two callers must not wait for each other.
        lock_until_commit(connection, f"places:{project_id}")


# Raw memories have no key, but who locks several of them must not wait for who does so in another order. The ledger
# knows rows that an undo has deleted: a redo may bring them back before they are locked.
_LIST_PROJECT_IDS = """
    SELECT project_id FROM consolidation.task_memories WHERE id = ANY(:ids)
    UNION SELECT project_id FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
    UNION SELECT project_id FROM consolidation.consolidation_suggestions WHERE id = ANY(:ids)
    UNION SELECT project_id FROM consolidation.consolidation_changes WHERE entity_id = ANY(:ids)
"""


def lock_active_keys_of(connection: Connection, ids: Sequence[UUID]) -> None:
    """Lock the active keys of the projects of these memories, suggestions and playbook entries."""
    lock_active_keys(connection, connection.scalars(text(_LIST_PROJECT_IDS), {"ids": list(ids)}).all())


def _active_key(row: str) -> str:
    """Return SQL of the active key of ``row``, a consolidated memory; null if it has none."""
    return f"""{row}.kind || CASE {row}.kind
        WHEN 'merged' THEN {row}.memory_type || {row}.normalized_hash || coalesce({row}.scope_key, '')
        WHEN 'pattern' THEN {row}.cluster_key
        WHEN 'principle' THEN {row}.cluster_key
        WHEN 'procedural' THEN concat({row}.user_id, E'\\n', {row}.scope_key) END"""


def duplicate_of(row: str) -> str:
    """Return SQL that is true if the row ``duplicate`` is another memory with the active key of ``row``."""
    return f"""duplicate.id <> {row}.id AND duplicate.project_id = {row}.project_id
        AND {_active_key("duplicate")} = {_active_key(row)}"""


_FIND_BY_TEXT = """
    SELECT memory_type, normalized_hash, coalesce(scope.key, ''), id
    FROM consolidation.consolidated_memories t, /* scope */
    WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL AND normalized_hash = ANY(:hashes)
        AND NOT scope.crosses
"""


def find_by_text(
    connection: Connection, project_id: UUID, hashes: Collection[str], *, scope: str
) -> dict[tuple[str, str, str], UUID]:
    """Return the active merged memories with one of these hashes of normalized texts.

    By memory type, hash and scope key, which is empty in a project without walls. Those of several scopes are left out,
    as a run dissolves them. ``scope``: the project's option.
    """
    statement = compose(_FIND_BY_TEXT, scope=source_scope(scope, "t"))
    rows = connection.execute(text(statement), {"project": project_id, "hashes": list(hashes)})
    return {(memory_type, hash_, scope): id_ for memory_type, hash_, scope, id_ in rows}


# Columns of which an active key is made, and that which says whether its row is active.
_KEY_COLUMNS = ("retired_at", "kind", "memory_type", "normalized_hash", "scope_key", "cluster_key", "user_id")

_LIST_ACTIVATED_KEYS = compose(
    """
    SELECT /* active_key */ AS key, m.id
    FROM consolidation.consolidation_changes c JOIN consolidation.consolidated_memories m ON m.id = c.entity_id
    WHERE c.group_id = ANY(:groups) AND c.new_state ?| /* columns */ AND m.retired_at IS NULL
    """,
    active_key=_active_key("m"),
    columns=f"ARRAY{list(_KEY_COLUMNS)}",
)

# One scan of the active rows, whatever the number of keys: a join would be planned as if there were a row or two.
_LIST_ACTIVE_KEYS = compose(
    """
    SELECT key, id FROM (
        SELECT /* active_key */ AS key, m.id FROM consolidation.consolidated_memories m
        WHERE m.project_id = :project AND m.retired_at IS NULL) active
    WHERE key = ANY(:keys) ORDER BY id
    """,
    active_key=_active_key("m"),
)


def reject_duplicates(connection: Connection, project_id: UUID, group_ids: Sequence[UUID]) -> None:
    """Raise ConflictError if a row that these groups of changes activated shares its key with another active row.

    Rows count as activated if a change created or restored them, or changed a column of their key.

    Raises:
        ConflictError: There is a duplicate; ``conflicts`` are the rows that were active before.
    """
    activated = dict(connection.execute(text(_LIST_ACTIVATED_KEYS), {"groups": list(group_ids)}).tuples().all())
    if not activated:
        return
    parameters = {"project": project_id, "keys": list(activated)}
    active = connection.execute(text(_LIST_ACTIVE_KEYS), parameters).tuples()
    reject_rows(
        [id_ for key, id_ in active if activated[key] != id_],
        "has the same text, or is of the same group, as one that would be active: archive it, or roll it back first",
    )
