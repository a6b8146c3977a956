"""Lineage: from derived knowledge down to its raw memories, and from a memory up to what was derived from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.id_prefixes import choose_id, find_bounds
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.ledger.lineage import TracedMemory, find_memories, load_derived, load_lineage

_NO_ID = "is not the id of a memory: give the id or"
# The attribute docstrings are the descriptions in output schemas.
_PYDANTIC_CONFIG = {"use_attribute_docstrings": True}


@dataclass(frozen=True)
class LineageSource:
    """Memory that another memory was derived from, with its own sources."""

    __pydantic_config__ = _PYDANTIC_CONFIG

    id: UUID
    kind: str
    memory_type: str | None
    similarity: float | None
    """Cosine similarity to the memory that was derived from it."""
    content: str | None
    """Null if the source was deleted."""
    learned_at: datetime | None
    author: str | None
    """Agent or user that a raw memory is of, or else its source."""
    sources: list[LineageSource]


@dataclass(frozen=True)
class DerivedKnowledge:
    """Memory or playbook entry that was derived from a memory."""

    __pydantic_config__ = _PYDANTIC_CONFIG

    id: UUID
    kind: str
    memory_type: str
    similarity: float | None
    steps: int
    """1 if it was derived directly."""
    content: str
    active: bool
    status: str
    """active, archived, superseded or retired; of a playbook entry active, review or retired."""


@dataclass(frozen=True)
class Lineage(TracedMemory):
    """Memory or playbook entry with the tree of its sources, and what was derived from it.

    ``level``: 0 to 3; 4 for a playbook entry. ``status``: active, merged, archived, deleted, retired or superseded; of
    a playbook entry active, review or retired.
    """

    sources: list[LineageSource]
    derived: list[DerivedKnowledge]


def trace_memory(engine: Engine, reference: str, *, depth: int) -> Lineage:
    """Return the lineage of a memory or playbook entry.

    The ``memory_type`` of a playbook entry is its category. Its sources include evidence that was added later.

    Args:
        reference: Id of a memory or playbook entry, or at least its first 8 hexadecimal digits.
        depth: Levels of sources.

    Raises:
        UsageError: The reference is no id, or several ids begin with it.
        NotFoundError: There is no such memory.
    """
    with engine.connect() as connection:
        found = _find_one(connection, reference)
        edges = load_lineage(connection, found.id, depth=depth)
        derived = load_derived(connection, found.id)
    return Lineage(
        **vars(found),
        sources=_build_tree(found.id, _group_by_child(edges)),
        derived=[DerivedKnowledge(*row) for row in derived],
    )


def find_memory_id(engine: Engine, reference: str, *, project_id: UUID | None = None) -> UUID:
    """Return the id of a memory or playbook entry. Whether a whole id exists is not checked.

    Args:
        reference: The id, or at least its first 8 hexadecimal digits, as a context tells it.
        project_id: Only ids of this project begin with it; None = of all.

    Raises:
        UsageError: The reference is no id, or several ids begin with it.
        NotFoundError: No id begins with it.
    """
    first, last = find_bounds(reference, _NO_ID)
    if first == last:
        return first
    with engine.connect() as connection:
        return _find_one(connection, reference, project_id).id


def _find_one(connection: Connection, reference: str, project_id: UUID | None = None) -> TracedMemory:
    first, last = find_bounds(reference, _NO_ID)
    found = find_memories(connection, first, last, project_id=project_id, limit=3)
    choose_id(reference, [one.id for one in found], f"there is no memory {reference}")
    return found[0]


def _group_by_child(edges: Sequence[Any]) -> dict[UUID, list[Any]]:
    """Return the distinct edges of each child. A memory that is reached in two ways has an edge on both levels."""
    children: dict[UUID, dict[UUID, Any]] = {}
    for edge in edges:
        children.setdefault(edge.child_id, {})[edge.parent_id] = edge
    return {child: list(parents.values()) for child, parents in children.items()}


def _build_tree(child: UUID, edges: Mapping[UUID, Sequence[Any]]) -> list[LineageSource]:
    return [
        LineageSource(
            id=edge.parent_id,
            kind=edge.parent_kind,
            memory_type=edge.memory_type,
            similarity=edge.similarity,
            content=edge.content,
            learned_at=edge.learned_at,
            author=edge.author,
            sources=_build_tree(edge.parent_id, edges),
        )
        for edge in edges.get(child, ())
    ]
