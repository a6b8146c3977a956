"""Relations between memories: list them, confirm or reject them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.memories.relation_types import RELATION_STATUSES, RELATION_TYPES
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.lifecycle.manual_actions import MANUAL_REASON
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.knowledge import relations as store
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import get_project

_DECISIONS = ("confirmed", "rejected")


def decide_relations(
    engine: Engine, ids: Sequence[UUID], status: str, *, changed_by: str, reason: str | None = None
) -> dict[UUID, UUID]:
    """Confirm or reject relations, all or none; a decision may be changed later.

    Returns:
        Relation id -> change group, by which the decision can be undone.

    Raises:
        UsageError: ``status`` is neither confirmed nor rejected.
        NotFoundError: A relation does not exist.
        ConflictError: A relation has this status already, or changed meanwhile.
    """
    if status not in _DECISIONS:
        raise UsageError(f"status {status!r} cannot be given to a relation: it must be {' or '.join(_DECISIONS)}")
    with engine.begin() as connection:
        rows = store.load_relations(connection, ids)
        missing = [str(id_) for id_ in dict.fromkeys(ids) if id_ not in rows]
        if missing:
            raise NotFoundError(f"there is no relation {', '.join(missing)}: `consolidation relations list` shows ids")
        same = tuple(str(id_) for id_, row in rows.items() if row.status == status)
        if same:
            raise ConflictError(f"relation {same[0]} is {status} already", same)
        groups: dict[UUID, UUID] = {}
        for project_id in {row.project_id for row in rows.values()}:
            own = [row for row in rows.values() if row.project_id == project_id]
            author = Author(project_id, None, changed_by)
            groups |= store.decide_relations(connection, author, own, status, reason=reason or MANUAL_REASON)
    return {id_: groups[id_] for id_ in ids}


def list_relations(
    engine: Engine, slug: str, *, limit: int, status: str | None = None, relation_type: str | None = None
) -> dict[str, Any]:
    """Return a project's relations, newest first, with the texts of both memories, and their number by status,
    of one status or type if given.

    Raises:
        NotFoundError: There is no such project.
        UsageError: There is no such status or type.
    """
    if status is not None and status not in RELATION_STATUSES:
        raise UsageError(f"status {status!r} does not exist; a relation is {', '.join(RELATION_STATUSES)}")
    if relation_type is not None and relation_type not in RELATION_TYPES:
        raise UsageError(f"type {relation_type!r} does not exist; the types are {', '.join(RELATION_TYPES)}")
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = store.list_relations(connection, project.id, limit=limit, status=status, relation_type=relation_type)
        totals = store.count_relations(connection, project.id, relation_type=relation_type)
    return {
        "project": slug,
        "totals": {name: totals.get(name, 0) for name in RELATION_STATUSES},
        "relations": [dict(row._mapping) for row in rows],
    }
