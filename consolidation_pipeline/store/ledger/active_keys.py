"""Places: what only one consolidated memory at a time can be active for, and who may move them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.engine import hold_until_commit
from consolidation_pipeline.store.ledger.ledger_writer import refuse_rows

_DERIVED = "consolidation.consolidated_memories"


def hold_places(connection: Connection, project_ids: Iterable[UUID]) -> None:
    """Be the only one who moves what is active in the projects, until the transaction ends; waits for whoever does.

    To be called before any row is locked, or those who wait for each other would. Whoever looks for a free place after
    this sees what all before did, and places change hands in the ledger in the order of commits: what is undone newest
    first finds each place as it was.
    """
    for project_id in sorted(set(project_ids)):
        hold_until_commit(connection, f"places:{project_id}")


def hold_places_of(connection: Connection, ids: Sequence[UUID]) -> None:
    """As ``hold_places``, of the projects in which these consolidated memories and suggestions are."""
    tables = (_DERIVED, "consolidation.consolidation_suggestions")
    query = " UNION ".join(f"SELECT project_id FROM {table} WHERE id = ANY(:ids)" for table in tables)
    hold_places(connection, connection.scalars(text(query), {"ids": list(ids)}).all())


def is_twin(row: str) -> str:
    """SQL: the consolidated memory ``twin`` has the place of ``row``, of which only one may be active."""
    return f"twin.id <> {row}.id AND twin.project_id = {row}.project_id AND {_place('twin')} = {_place(row)}"


def _place(row: str) -> str:
    """SQL of what ``row`` is active for; null: any number may be.

    Merged memories: one for each text and type; patterns and principles: one for each group; one profile a person.
    """
    kinds = {
        "merged": f"{row}.memory_type || {row}.normalized_hash",
        "pattern": f"{row}.cluster_key",
        "principle": f"{row}.cluster_key",
        "procedural": f"coalesce({row}.user_id, '')",
    }
    cases = " ".join(f"WHEN '{kind}' THEN {key}" for kind, key in kinds.items())
    return f"{row}.kind || CASE {row}.kind {cases} END"


def load_speakers(connection: Connection, project_id: UUID, hashes: Collection[str]) -> dict[tuple[str, str], UUID]:
    """The active merged memories that say one of these texts, by memory type and hash of the normalised text."""
    rows = connection.execute(
        text(
            "SELECT memory_type, normalized_hash, id FROM consolidation.consolidated_memories "
            "WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL AND normalized_hash = ANY(:hashes)"
        ),
        {"project": project_id, "hashes": list(hashes)},
    )
    return {(memory_type, hash_): id_ for memory_type, hash_, id_ in rows}


def refuse_twins(connection: Connection, project_id: UUID, group_ids: Sequence[UUID]) -> None:
    """Nothing that groups of changes made or brought back, or its words, may be active beside another in its place.

    Raises:
        ConflictError: one would; ``conflicts`` are those that were there.
    """
    moved = (
        f"SELECT {_place('m')}, m.id FROM consolidation.consolidation_changes c JOIN consolidation.consolidated_memories m ON m.id = c.entity_id "
        "WHERE c.group_id = ANY(:groups) AND c.new_state ?| ARRAY['retired_at', 'normalized_hash'] "
        "AND m.retired_at IS NULL"
    )
    places = dict(connection.execute(text(moved), {"groups": list(group_ids)}).tuples().all())
    if not places:
        return
    # One look at what is active, whatever its number: a join of the two is planned as if there were a row or two.
    standing = f"SELECT {_place('m')}, m.id FROM consolidation.consolidated_memories m WHERE m.project_id = :project AND m.retired_at IS NULL"
    taken = f"SELECT place, id FROM ({standing}) AS standing (place, id) WHERE place = ANY(:places) ORDER BY id"
    found = connection.execute(text(taken), {"project": project_id, "places": list(places)}).tuples()
    refuse_rows(
        [id_ for place, id_ in found if places[place] != id_],
        "says the same, or stands for the same group, as one that would be active: archive it, or roll it back first",
    )
