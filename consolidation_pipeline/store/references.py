"""What names a memory: the columns, of any table, by which one row stands on another."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.ledger import refuse
from consolidation_pipeline.store.schema import SCHEMA

# (rows, id of the row that names, what it names). That a raw memory is in a merged memory is left out: it changes with
# that memory, in one group. Arrays are taken apart, so that one join answers for any number of rows.
_REFERENCES = (
    ("memory_lineage t", "t.child_id", "t.parent_id"),
    ("consolidated_memories t", "t.id", "t.superseded_by_id"),
    ("memory_relations t", "t.id", "t.a_id"),
    ("memory_relations t", "t.id", "t.b_id"),
    ("playbook_entries t", "t.id", "t.source_id"),
    ("playbook_entries t, unnest(t.supporting_memory_ids) AS e(id)", "t.id", "e.id"),
    ("consolidation_suggestions t", "t.id", "t.result_memory_id"),
    ("consolidation_suggestions t, unnest(t.original_memory_ids) AS e(id)", "t.id", "e.id"),
)
# SQL of every reference: the id of the row that names, and the id it names.
REFERENCES = " UNION ALL ".join(
    f"SELECT {owner} AS id, {named} AS named FROM {SCHEMA}.{rows}" for rows, owner, named in _REFERENCES
)


def refuse_dangling(connection: Connection, changed: str) -> None:
    """No row among the ``entity_id`` of the table ``changed`` may name a memory that was there once and is gone.

    Raises:
        ConflictError: one does; ``conflicts`` are those rows.
    """
    refuse(
        connection,
        f"SELECT DISTINCT r.id FROM ({REFERENCES}) r JOIN {changed} c ON c.entity_id = r.id "
        f"WHERE NOT EXISTS (SELECT 1 FROM {SCHEMA}.consolidated_memories m WHERE m.id = r.named) "
        f"AND NOT EXISTS (SELECT 1 FROM {SCHEMA}.task_memories m WHERE m.id = r.named) "
        f"AND EXISTS (SELECT 1 FROM {SCHEMA}.consolidation_changes l WHERE l.entity_id = r.named)",
        "names a memory that is gone: bring that back first",
    )


def is_twin(row: str) -> str:
    """SQL: the consolidated memory ``twin`` has the place of ``row``, of which only one may be active.

    Merged memories: one for each text and type; patterns and principles: one for each group; one profile a person.
    """
    place = (
        "CASE {0}.kind WHEN 'merged' THEN {0}.memory_type || {0}.normalized_hash "
        "WHEN 'pattern' THEN {0}.cluster_key WHEN 'principle' THEN {0}.cluster_key "
        "WHEN 'procedural' THEN coalesce({0}.user_id, '') END"
    )
    same = " AND ".join(f"twin.{name} = {row}.{name}" for name in ("project_id", "kind"))
    return f"twin.id <> {row}.id AND {same} AND {place.format('twin')} = {place.format(row)}"


def load_speakers(connection: Connection, project_id: UUID, hashes: Collection[str]) -> dict[tuple[str, str], UUID]:
    """The active merged memories that say one of these texts, by memory type and hash of the normalised text."""
    rows = connection.execute(
        text(
            f"SELECT memory_type, normalized_hash, id FROM {SCHEMA}.consolidated_memories "
            "WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL AND normalized_hash = ANY(:hashes)"
        ),
        {"project": project_id, "hashes": list(hashes)},
    )
    return {(memory_type, hash_): id_ for memory_type, hash_, id_ in rows}


def refuse_twins(connection: Connection, group_id: UUID) -> None:
    """Nothing that a group brought back, or its words, may be active beside another one that has its place.

    Raises:
        ConflictError: one would; ``conflicts`` are those that were there.
    """
    derived = f"{SCHEMA}.consolidated_memories"
    refuse(
        connection,
        f"SELECT DISTINCT twin.id FROM {SCHEMA}.consolidation_changes c JOIN {derived} m ON m.id = c.entity_id "
        f"JOIN {derived} twin ON {is_twin('m')} "
        "WHERE c.group_id = :group AND c.new_state ?| ARRAY['retired_at', 'normalized_hash'] "
        "AND m.retired_at IS NULL AND twin.retired_at IS NULL",
        "says the same, or stands for the same group, as one that would come back: archive it, or roll it back first",
        group=group_id,
    )
