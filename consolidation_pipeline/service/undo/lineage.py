"""Lineage: from derived knowledge down to the raw memories it rests on, and from a memory up to what it became."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.ledger.lineage import TracedMemory, find_memories, load_derived, load_lineage

SHORTEST_PREFIX = 8

_ID = re.compile(r"[0-9a-f]{8,32}")


def trace_memory(engine: Engine, reference: str, *, depth: int) -> dict[str, Any]:
    """A memory with ``sources``, the tree of what it was made from, and ``derived``, what was made from it.

    ``reference`` is an id or its beginning, at least 8 hexadecimal digits, of a memory or of a playbook entry;
    ``depth`` counts levels of sources. The ``memory_type`` of an entry is its category; evidence that bore it out later
    is a source beside what it was made from.

    Raises:
        UsageError: not such an id, or more than one memory has it. NotFoundError: none has it.
    """
    with engine.connect() as connection:
        found = _find_one(connection, reference)
        edges = load_lineage(connection, found.id, depth=depth)
        derived = load_derived(connection, found.id)
    return {
        "id": found.id,
        "project": found.project,
        "kind": found.kind,
        "level": found.level,
        "memory_type": found.memory_type,
        "status": found.status,
        "content": found.content,
        "learned_at": found.learned_at,
        "sources": _tree(found.id, _by_child(edges)),
        "derived": [dict(row._mapping) for row in derived],
    }


def _find_one(connection: Connection, reference: str) -> TracedMemory:
    digits = reference.lower().replace("-", "")
    if not _ID.fullmatch(digits):
        raise UsageError(
            f"{reference!r} is not the id of a memory: give the id or its first {SHORTEST_PREFIX} or more digits"
        )
    found = find_memories(connection, UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f")), limit=3)
    if not found:
        raise NotFoundError(f"there is no memory {reference}")
    if len(found) > 1:
        raise UsageError(f"{reference} is the beginning of several ids, such as {found[0].id} and {found[1].id}")
    return found[0]


def _by_child(edges: Sequence[Any]) -> dict[UUID, list[Any]]:
    """Edges by child, each once: a memory that is reached on two ways is listed on both levels."""
    children: dict[UUID, dict[UUID, Any]] = {}
    for edge in edges:
        children.setdefault(edge.child_id, {})[edge.parent_id] = edge
    return {child: list(parents.values()) for child, parents in children.items()}


def _tree(child: UUID, edges: Mapping[UUID, Sequence[Any]]) -> list[dict[str, Any]]:
    return [
        {
            "id": edge.parent_id,
            "kind": edge.parent_kind,
            "memory_type": edge.memory_type,
            "similarity": edge.similarity,
            "content": edge.content,
            "sources": _tree(edge.parent_id, edges),
        }
        for edge in edges.get(child, ())
    ]
