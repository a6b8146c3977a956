"""Decisions on many suggestions: by their ids, or all that match a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.differences.explanation import PROOFS
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.review.suggestion_decisions import (
    SuggestionDecision,
    approve_suggestion,
    keep_variants,
    reject_suggestion,
)
from consolidation_pipeline.service.review.suggestion_queue import GroupRule, count_beyond, refill_queue
from consolidation_pipeline.service.review.suggestions import check_filters
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review import suggestions as store

_CONTRADICTIONS = [kind for kind, verdict in PROOFS.items() if verdict == "contradicts"]
# Functions by the name of their decision.
DECISIONS: dict[str, Callable[..., SuggestionDecision]] = {
    "approve": approve_suggestion,
    "reject": reject_suggestion,
    "keep": keep_variants,
}


@dataclass(frozen=True)
class BulkResult:
    """Decisions on several suggestions.

    ``refused``: (id, reason) of those that could not be decided. ``remaining``: number of others that match the rule.
    """

    decided: list[SuggestionDecision]
    refused: list[tuple[UUID, str]]
    remaining: int = 0


@dataclass(frozen=True)
class Rule:
    """Suggestions of a project to decide on together; a condition of None selects all.

    ``differ_only_in``: kind of all differences between the originals, such as value or ``value: build #``. ``limit``:
    most suggestions, those worth most first.
    """

    project: str
    min_similarity: float | None = None
    type: str | None = None
    differ_only_in: str | None = None
    limit: int | None = None

    @property
    def has_conditions(self) -> bool:
        """True if it has more than a project: a forgotten condition must not decide on all suggestions."""
        return (self.min_similarity, self.type, self.differ_only_in, self.limit) != (None, None, None, None)

    @property
    def of_groups(self) -> GroupRule | None:
        """The rule for groups that wait beyond ``review_limit``; None if it selects none of them."""
        if self.differ_only_in is None:
            return None
        return GroupRule(self.differ_only_in, self.type, self.min_similarity)


@dataclass(frozen=True)
class MatchCount:
    """Numbers of the suggestions that match a rule, and of the groups beyond ``review_limit`` that do."""

    waiting: int
    beyond: int

    @property
    def total(self) -> int:
        """Number of suggestions that a decision on all of them would decide."""
        return self.waiting + self.beyond


def count_matching(engine: Engine, rule: Rule, *, settings: Settings) -> MatchCount:
    """Return how many suggestions ``decide_matching`` would select, without the limit of the rule.

    Raises:
        NotFoundError: There is no such project.
        UsageError: The rule has no condition, or there is no such type or kind of difference.
    """
    _check_rule(rule)
    with engine.connect() as connection:
        project = get_project(connection, rule.project)
        waiting = len(_list_ids(connection, project.id, replace(rule, limit=None)))
    if rule.of_groups is None:
        return MatchCount(waiting, 0)
    return MatchCount(waiting, count_beyond(engine, project.id, effective_options(project, settings), rule.of_groups))


def _list_ids(connection: Connection, project_id: UUID, rule: Rule) -> list[UUID]:
    return store.list_pending_ids(
        connection,
        project_id,
        memory_type=rule.type,
        min_similarity=rule.min_similarity,
        differ_only_in=rule.differ_only_in,
        limit=rule.limit,
    )


def decide_matching(
    engine: Engine,
    rule: Rule,
    decision: str,
    *,
    most: int | None = None,
    expected: int | None = None,
    settings: Settings,
    decided_by: str,
    **how: Any,
) -> BulkResult:
    """Decide all suggestions that match a rule, each in its own transaction; a conflict does not stop the others.

    A rule about a kind of difference also selects the groups that match it among those that wait beyond
    ``review_limit``: they are proposed first. Only such a rule approves suggestions whose originals contradict each
    other: by any other one these are refused.

    Args:
        decision: A key of ``DECISIONS``.
        most: Most decisions of this call; None = no limit but the rule's.
        expected: Number that the person was told; None = not checked.
        how: Arguments of its function, such as ``note``.

    Raises:
        NotFoundError: There is no such project.
        UsageError: The rule has no condition, or there is no such decision, type or kind of difference.
        ConflictError: Not as many match as expected. Nothing was decided.
    """
    _check_rule(rule)
    with engine.connect() as connection:
        project = get_project(connection, rule.project)
    if rule.of_groups is not None:
        options = effective_options(project, settings)
        refill_queue(engine, project.id, options, changed_by=decided_by, rule=rule.of_groups)
    with engine.connect() as connection:
        ids = _list_ids(connection, project.id, rule)
        is_blind = decision == "approve" and rule.differ_only_in is None
        contradicting = store.list_differing(connection, ids, kinds=_CONTRADICTIONS) if is_blind else set()
    if expected not in (None, len(ids)):
        raise ConflictError(f"{len(ids)} suggestions match now, not {expected}: nothing was decided")
    chosen = ids[:most]
    left = [(id_, _tell_contradiction(id_)) for id_ in chosen if id_ in contradicting]
    clear = [id_ for id_ in chosen if id_ not in contradicting]
    done = decide_each(engine, clear, decision, settings=settings, decided_by=decided_by, **how)
    return replace(done, refused=[*done.refused, *left], remaining=len(ids) - len(chosen))


def _tell_contradiction(id_: UUID) -> str:
    return (
        f"the originals of suggestion {id_} contradict each other: approve it by its id, or by a rule on one kind of "
        "difference"
    )


def _check_rule(rule: Rule) -> None:
    if not rule.has_conditions:
        raise UsageError("a rule needs a condition besides the project: similarity, type, kind of difference or limit")
    check_filters("pending", rule.type, rule.differ_only_in)


def decide_each(
    engine: Engine, ids: Iterable[UUID], decision: str, *, settings: Settings, decided_by: str, **how: Any
) -> BulkResult:
    """Decide suggestions one by one; a conflict of one does not stop the others. Then refill their queues.

    Raises:
        NotFoundError: There is no suggestion with one of the ids.
        UsageError: There is no such decision, or its arguments do not fit.
    """
    if decision not in DECISIONS:
        raise UsageError(f"{decision!r} is no decision: it must be {', '.join(DECISIONS)}")
    decided, refused = list[SuggestionDecision](), list[tuple[UUID, str]]()
    for id_ in ids:
        try:
            decided.append(
                DECISIONS[decision](engine, id_, decided_by=decided_by, settings=settings, refill=False, **how)
            )
        except ConflictError as error:
            refused.append((id_, str(error)))
    for slug in sorted({one.project for one in decided}):
        with engine.connect() as connection:
            project = get_project(connection, slug)
        refill_queue(engine, project.id, effective_options(project, settings), changed_by=decided_by)
    return BulkResult(decided, refused)
