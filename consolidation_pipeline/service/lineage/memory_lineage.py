"""Memory-level lineage of a job: for each group of changes, the memories that went in and the rows that came out.

It holds ids, operations and numbers, and no text of a memory: events leave the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consolidation_pipeline.store.ledger.job_changes import JobChange

# Groups of changes and ids of one group in an event. The rest is counted: a collector takes about a megabyte at most.
MOST_GROUPS = 500
MOST_IDS = 50

# Columns of an image with the ids of the memories that a row is made of.
_SOURCES = ("source_memory_ids", "supporting_memory_ids", "original_memory_ids", "source_id", "a_id", "b_id")
# Column of an image that says by which rule a row of a table was written.
_RULES = {"consolidated_memories": "kind", "memory_relations": "relation_type", "task_memories": "archive_reason"}
# Reasons of these operations are made of numbers and fixed words. Others may quote a memory.
_PLAIN_REASONS = {"merge", "pattern", "principle", "summarize", "archive", "restore", "promote"}


@dataclass(frozen=True)
class GroupLineage:
    """Lineage of a group of changes.

    ``rule``: which rule made it, such as ``merged``, ``staleness`` or ``supersedes``. ``inputs``: ids of memories.
    ``outputs``: table and id of the rows that it wrote, without the inputs that it only marked.
    """

    group: str
    operation: str
    rule: str
    reason: str | None
    confidence: float | None
    inputs: Sequence[str]
    outputs: Sequence[tuple[str, str]]

    def to_json(self, most_ids: int = MOST_IDS) -> dict[str, Any]:
        """Return it as JSON. Beyond ``most_ids`` inputs or outputs, only their number is given."""
        shown = {
            "group": self.group,
            "operation": self.operation,
            "rule": self.rule,
            "inputs": list(self.inputs[:most_ids]),
            "inputCount": len(self.inputs),
            "outputs": [{"table": table, "id": id_} for table, id_ in self.outputs[:most_ids]],
            "outputCount": len(self.outputs),
        }
        told = {"reason": self.reason, "confidence": self.confidence}
        return shown | {name: value for name, value in told.items() if value is not None}


def trace_group(changes: Sequence[JobChange]) -> GroupLineage:
    """Return the lineage of a group of changes, which is not empty."""
    inputs = {id_: None for change in changes for id_ in list_sources(change.after)}
    marked = [str(change.row_id) for change in changes if change.table == "task_memories"]
    written = [change for change in changes if change.table != "task_memories"] or list(changes)
    first = written[0]
    return GroupLineage(
        group=str(first.group_id),
        operation=first.operation,
        rule=_find_rule(first),
        reason=first.reason if first.operation in _PLAIN_REASONS else None,
        confidence=first.confidence,
        inputs=sorted(inputs | dict.fromkeys(marked)),
        outputs=sorted({(change.table, str(change.row_id)) for change in written}),
    )


def list_sources(image: Mapping[str, Any] | None) -> list[str]:
    """Return the ids of the memories that a row is made of, by its image in the ledger."""
    found: list[str] = []
    for name in _SOURCES:
        value = (image or {}).get(name)
        # An update of a long list has only the ids that it added.
        ids = value.get("only", []) if isinstance(value, Mapping) else [value] if isinstance(value, str) else value
        found += ids or []
    return found


def _find_rule(change: JobChange) -> str:
    found = (change.after or {}).get(_RULES.get(change.table, ""))
    return str(found) if found else change.operation


@dataclass(frozen=True)
class MemoryLineage:
    """Lineage of a job: its first groups, and the number of all."""

    groups: Sequence[GroupLineage]
    total: int


def trace_groups(groups: Iterable[Sequence[JobChange]], *, most: int = MOST_GROUPS) -> MemoryLineage:
    """Return the lineage of groups of changes; of more than ``most``, the rest is counted."""
    traced: list[GroupLineage] = []
    total = 0
    for changes in groups:
        total += 1
        if total <= most:
            traced.append(trace_group(changes))
    return MemoryLineage(traced, total)
