"""Review queue: list patterns, principles and playbook entries that wait for a person, and approve or dismiss them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.knowledge.pattern_layout import tell_in_english
from consolidation_pipeline.core.knowledge.risky_text import find_risks
from consolidation_pipeline.core.memories.relation_types import SUPERSEDES
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.lifecycle.manual_actions import MANUAL_REASON
from consolidation_pipeline.service.review.expected_text import check_expected, short_hash
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.knowledge.abstractions import SEEN
from consolidation_pipeline.store.knowledge.relations import count_relations
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys_of
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.review_queue import (
    PLAYBOOK_ENTRY,
    REVIEWED_KINDS,
    ReviewItem,
    count_review_items,
    list_review_items,
    lock_review_items,
    write_review_decisions,
)


@dataclass(frozen=True)
class ReviewDecision:
    """A decision on one row. A rollback of ``group_id`` undoes it."""

    id: UUID
    project: str
    kind: str
    group_id: UUID


def decide_review(
    engine: Engine,
    ids: Sequence[UUID],
    *,
    approved: bool,
    changed_by: str,
    reason: str | None = None,
    expected: Mapping[UUID, str] | None = None,
) -> list[ReviewDecision]:
    """Approve rows that wait for a person, or dismiss rows that wait or are active: all of them or none.

    An approved pattern or principle is promoted by the next run if it has enough evidence. A dismissed one is retired
    and not made again from the same memories. An approved playbook entry becomes active, a dismissed one is retired.

    Args:
        expected: Hashes of the texts that the person read, by id, as ``list_review`` tells them; None = not checked.

    Raises:
        NotFoundError: An id is unknown.
        UsageError: A row is of a kind that is not reviewed, or ``expected`` has an id that is not among ``ids``.
        ConflictError: A row to approve does not wait, a row to dismiss is retired already, or a text is another one
            than expected.
    """
    expected = expected or {}
    if unasked := [str(id_) for id_ in expected if id_ not in ids]:
        raise UsageError(f"a text is expected of {', '.join(unasked)}, which is not among the ids to decide on")
    groups: dict[UUID, UUID] = {}
    with engine.begin() as connection:
        lock_active_keys_of(connection, ids)
        rows = _lock_decidable(connection, list(dict.fromkeys(ids)), approved=approved)
        for row in rows:
            check_expected(row.kind, row.id, row.content or "", expected.get(row.id))
        for project_id in sorted({row.project_id for row in rows}):
            own = [row for row in rows if row.project_id == project_id]
            author, why = Author(project_id, None, changed_by), reason or MANUAL_REASON
            groups |= write_review_decisions(
                connection, author, own, approved=approved, reason=why, now=datetime.now(UTC)
            )
            if entries := sum(row.kind == PLAYBOOK_ENTRY for row in own):
                payload = {"approved" if approved else "dismissed": entries}
                append_event(connection, project_id, "playbook.changed", payload)
    return [ReviewDecision(row.id, row.project, row.kind, groups[row.id]) for row in rows]


def _lock_decidable(connection: Connection, ids: Sequence[UUID], *, approved: bool) -> list[ReviewItem]:
    """Lock the rows and return them in the order of ``ids``. Raise the errors of ``decide_review``."""
    found = lock_review_items(connection, ids)
    missing = [str(id_) for id_ in ids if id_ not in found]
    if missing:
        raise NotFoundError(f"nothing has the id {', '.join(missing)}: `consolidation review list` shows ids")
    for id_ in ids:
        if found[id_].kind not in REVIEWED_KINDS:
            raise UsageError(f"{id_} is of kind {found[id_].kind}: it must be one of {', '.join(REVIEWED_KINDS)}")
    decided = tuple(str(id_) for id_ in ids if not (found[id_].is_waiting if approved else found[id_].can_be_dismissed))
    if decided:
        why = "does not wait for review" if approved else "is retired already"
        raise ConflictError(f"{found[UUID(decided[0])].kind} {decided[0]} {why}", decided)
    return [found[id_] for id_ in ids]


def list_review(engine: Engine, slug: str, *, limit: int, kind: str | None = None) -> dict[str, Any]:
    """Return the rows of a project that wait for a person, highest confidence first, and their number by kind.

    Each row has the ``risks`` of its text, in words, and the hash of it, which a decision may expect.
    ``supersessions``: number of candidates for a relation ``supersedes``, which are decided as relations.

    Raises:
        NotFoundError: There is no such project.
        UsageError: ``kind`` is none of ``REVIEWED_KINDS``.
    """
    if kind is not None and kind not in REVIEWED_KINDS:
        raise UsageError(f"kind {kind!r} is not reviewed: it must be {', '.join(REVIEWED_KINDS)}")
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = list_review_items(connection, project.id, limit=limit, kind=kind)
        totals = count_review_items(connection, project.id)
        relations = count_relations(connection, project.id, relation_type=SUPERSEDES)
    return {
        "project": slug,
        "totals": {name: totals.get(name, 0) for name in REVIEWED_KINDS},
        "waiting": [_describe_item(row) for row in rows],
        "supersessions": relations.get("candidate", 0),
    }


def _describe_item(row: Row[Any]) -> dict[str, Any]:
    details = row.details or {}
    return {
        "id": row.id,
        "kind": row.kind,
        "pattern_type": row.pattern_type,
        "confidence": row.confidence,
        "evidence_count": row.evidence,
        "content": row.content,
        "text_hash": short_hash(row.content),
        "best_practices": details.get("best_practices", []),
        "gotchas": details.get("gotchas", []),
        "evidence": details.get("evidence", []),
        "why": _describe_reason(row),
        "risks": [risk.reason for risk in find_risks(row.content)],
        "created_at": row.created_at,
    }


def _describe_reason(row: Row[Any]) -> str:
    """Return why a row waits, and how often and when a pattern was seen."""
    seen = (row.details or {}).get(SEEN)
    return ". ".join(filter(None, (_explain_waiting(row), seen and tell_in_english(seen))))


def _explain_waiting(row: Row[Any]) -> str:
    if row.kind == PLAYBOOK_ENTRY:
        return row.reason or "it was not sure enough to be promoted by itself"
    if row.method == "heuristic":
        return "it was made without a model"
    return f"the model was only {row.llm_confidence:.2f} sure of it"
