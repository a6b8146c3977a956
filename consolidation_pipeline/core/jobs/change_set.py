"""Change set of a job: its changes in a canonical form, their hash, and the first decision in which two sets differ.

The form leaves out what differs between two machines that decide alike: clocks, random ids, versions of rows, and
numbers that were measured on vectors. docs/replay.md describes it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

# Operations in the order in which the phases of a job write them. Others come last.
_OPERATIONS = (
    *("merge", "pattern", "principle", "promote", "edit", "review", "summarize", "associate", "archive", "restore"),
)
# Columns of a row image that say nothing about what was decided: random ids, and numbers that depend on rounding.
_LEFT_OUT = {
    *("project_id", "job_id", "version", "original_versions"),
    *("embedding", "similarity", "similarities", "confidence", "confidence_score", "worth"),
}
# Texts of the program in which such numbers are quoted.
_EXPLANATIONS = {"reason", "rationale"}
_DECIMAL = re.compile(r"\d+\.\d+")


class LedgerChange(NamedTuple):
    """Change of a job, as the ledger has it. The images are those of the row before and after, None without a row."""

    group_id: UUID
    operation: str
    entity_type: str
    entity_id: UUID
    previous_state: Mapping[str, Any] | None
    new_state: Mapping[str, Any] | None
    reason: str | None


@dataclass(frozen=True)
class Decision:
    """A group of changes.

    Attributes:
        operation: Operation of its first change.
        group_id: Its group in the ledger; random.
        rows: Ids of the changed rows, sorted.
        changes: Number of its changes.
        digest: SHA-256 of the changes in canonical form, 64 hexadecimal digits.
    """

    operation: str
    group_id: UUID
    rows: tuple[str, ...]
    changes: int
    digest: str

    @property
    def rank(self) -> tuple[int, tuple[str, ...]]:
        """Place among the decisions of a job: by phase, then by the ids of its rows."""
        known = self.operation in _OPERATIONS
        return _OPERATIONS.index(self.operation) if known else len(_OPERATIONS), self.rows


class DifferingDecision(NamedTuple):
    """The same decision on both sides; None on a side that did not make it."""

    recorded: Decision | None
    replayed: Decision | None

    @property
    def operation(self) -> str:
        """Operation of the decision."""
        return next(side.operation for side in self if side is not None)

    @property
    def rows(self) -> list[str]:
        """Ids of the rows that a side changed, sorted."""
        return sorted({id_ for side in self if side is not None for id_ in side.rows})


@dataclass(frozen=True)
class ChangeSet:
    """Decisions of a job, in no order."""

    decisions: tuple[Decision, ...]

    @cached_property
    def digest(self) -> str:
        """Hash of the set: ``sha256:`` and 64 hexadecimal digits. Equal for jobs that decided alike."""
        listed = "\n".join(sorted(decision.digest for decision in self.decisions))
        return f"sha256:{sha256(listed.encode()).hexdigest()}"

    @property
    def changes(self) -> int:
        """Number of changes."""
        return sum(decision.changes for decision in self.decisions)


def build_change_set(changes: Iterable[LedgerChange]) -> ChangeSet:
    """Return the change set of changes, given in the order of the ledger."""
    operations: dict[UUID, str] = {}
    digests: dict[UUID, list[bytes]] = {}
    rows: dict[UUID, set[str]] = {}
    for change in changes:
        operations.setdefault(change.group_id, change.operation)
        digests.setdefault(change.group_id, []).append(_hash_change(change))
        rows.setdefault(change.group_id, set()).add(str(change.entity_id))
    return ChangeSet(
        tuple(
            Decision(
                operation=operation,
                group_id=group,
                rows=tuple(sorted(rows[group])),
                changes=len(digests[group]),
                digest=sha256(b"".join(sorted(digests[group]))).hexdigest(),
            )
            for group, operation in operations.items()
        )
    )


def _hash_change(change: LedgerChange) -> bytes:
    encoded = json.dumps(canonical_change(change), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(encoded.encode()).digest()


def canonical_change(change: LedgerChange) -> dict[str, Any]:
    """Return a change as JSON values, without what differs between two machines that decide alike."""
    return {
        "operation": change.operation,
        "table": change.entity_type,
        "id": str(change.entity_id),
        "before": _canonical_image(change.previous_state),
        "after": _canonical_image(change.new_state),
        "reason": _mask_decimals(change.reason),
    }


def _canonical_image(value: Any) -> Any:
    """Return an image, or a part of one, without what is left out; instants become "set"."""
    if isinstance(value, Mapping):
        return {
            key: _canonical_column(key, part)
            for key, part in value.items()
            if key not in _LEFT_OUT and not (key == "lineage" and isinstance(part, Mapping))
        }
    if isinstance(value, list):
        return [_canonical_image(part) for part in value]
    return value


def _canonical_column(key: str, value: Any) -> Any:
    if key.endswith("_at"):
        return None if value is None else "set"
    return _mask_decimals(value) if key in _EXPLANATIONS else _canonical_image(value)


def _mask_decimals(value: Any) -> Any:
    return _DECIMAL.sub("#", value) if isinstance(value, str) else value


def find_differing(recorded: ChangeSet, replayed: ChangeSet) -> list[DifferingDecision]:
    """Return the decisions in which two change sets differ, in the order of the phases.

    Two decisions are the same one made differently if they have an operation and a row in common.
    """
    mine, theirs = _list_only(recorded, replayed), _list_only(replayed, recorded)
    by_row = {(decision.operation, id_): at for at, decision in enumerate(theirs) for id_ in decision.rows}
    found, used = list[DifferingDecision](), set[int]()
    for decision in mine:
        keys = ((decision.operation, id_) for id_ in decision.rows)
        partner = next((by_row[key] for key in keys if key in by_row and by_row[key] not in used), None)
        used |= set() if partner is None else {partner}
        found.append(DifferingDecision(decision, None if partner is None else theirs[partner]))
    found += [DifferingDecision(None, decision) for at, decision in enumerate(theirs) if at not in used]
    return sorted(found, key=lambda pair: min(side.rank for side in pair if side is not None))


def _list_only(one: ChangeSet, other: ChangeSet) -> list[Decision]:
    """Return the decisions of ``one`` that ``other`` lacks, by rank."""
    missing = Counter(decision.digest for decision in one.decisions)
    missing.subtract(decision.digest for decision in other.decisions)
    found = list[Decision]()
    for decision in sorted(one.decisions, key=lambda decision: decision.rank):
        if missing[decision.digest] > 0:
            missing[decision.digest] -= 1
            found.append(decision)
    return found
