"""Queue of suggestions: groups ranked by how much a decision is worth, and at most ``review_limit`` of them waiting.

A run ranks all groups. Each decision makes room, which the next groups of the last run take at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.calibration.model_thresholds import resolve_thresholds
from consolidation_pipeline.core.knowledge.difference_kinds import list_kinds
from consolidation_pipeline.core.knowledge.merge_proposals import (
    compute_worth,
    differs_only_in,
    fingerprint,
    learn_from_decisions,
)
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.review.suggest_groups import SuggestGroup, read_suggest_groups
from consolidation_pipeline.service.review.suggestion_texts import merge_originals
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs.event_outbox import append_events
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.review.suggestion_counts import count_decisions_by_kind
from consolidation_pipeline.store.similarity.calibrations import load_calibration
from consolidation_pipeline.store.similarity.clusters import load_clusters

# Groups beyond the limit that are compared text by text to find those of one kind: a few seconds.
MAX_COMPARED = 5_000
# Groups that are compared to rank them by what people decided on such differences: half a second, as each decision of a
# person waits for it.
_MAX_TAUGHT = 200
# Groups that are compared at a time, if fewer are wanted.
_FEWEST_COMPARED = 10


@dataclass(frozen=True)
class RankedGroup:
    """A group that can be proposed.

    ``originals``: (id, version) of each member. ``fingerprint``: hash of members and contents, by which a group is
    recognised that was proposed before. ``kinds``: of the differences of its texts; None = they were not compared.
    ``memory_type``: of the first member, known once they were.
    """

    group: SuggestGroup
    worth: float
    originals: Sequence[tuple[UUID, int]]
    fingerprint: str
    kinds: tuple[str, ...] | None = None
    memory_type: str | None = None


@dataclass(frozen=True)
class GroupRule:
    """Groups with differences of one kind alone, to propose whatever their number; None = any type or similarity."""

    differ_only_in: str
    memory_type: str | None = None
    min_similarity: float | None = None


@dataclass(frozen=True)
class Ranking:
    """The groups that can be proposed, those worth most first, and the numbers of the others.

    ``proposed_before``: they were proposed as they are, or share a memory with a pending suggestion. ``inactive``: a
    member is not active any more, or they are of several scopes. ``decided``: by kind of difference, number of
    approvals and of all decisions, from which the ranking learned.
    """

    groups: Sequence[RankedGroup]
    proposed_before: int
    inactive: int
    decided: Mapping[str, tuple[int, int]]


def rank_groups(
    connection: Connection,
    project_id: UUID,
    groups: Sequence[SuggestGroup],
    *,
    first: int,
    scope: str,
    t_suggest: float,
    upcoming: frozenset[UUID] = frozenset(),
) -> Ranking:
    """Rank the groups that were not proposed yet. Of groups that share a memory, the one worth most is taken.

    Args:
        first: Number of groups whose order counts: theirs follows what people decided on such differences.
        scope: The project's option.
        t_suggest: Similarity from which a person is asked.
        upcoming: Merged memories that the run is about to write; they have no uses or texts of their own yet.
    """
    proposed, waiting = store.load_proposed(connection, project_id)
    states = store.load_states(connection, [id_ for group in groups for id_ in group.members], scope=scope)
    ranked, inactive = [], 0
    for group in groups:
        rows = [states[id_] for id_ in group.members if id_ in states]
        missing = [id_ for id_ in group.members if id_ not in states]
        if not upcoming.issuperset(missing) or len({row.scope_key for row in rows}) > 1:
            inactive += 1
            continue
        worth = compute_worth(len(group.members), sum(row.uses for row in rows), group.closeness(t_suggest))
        hash_ = fingerprint([*((row.id, row.content_hash) for row in rows), *((id_, "") for id_ in missing)])
        ranked.append(RankedGroup(group, worth, [(row.id, row.version) for row in rows], hash_))
    ranked.sort(key=_rank)
    new = list[RankedGroup]()
    for one in ranked:
        if one.fingerprint not in proposed and waiting.isdisjoint(one.group.members):
            new.append(one)
            waiting.update(one.group.members)
    decided = count_decisions_by_kind(connection, project_id)
    return Ranking(_teach(connection, new, first, decided), len(ranked) - len(new), inactive, decided)


def _rank(one: RankedGroup) -> tuple[float, str]:
    """Return the sort key of a group: worth most first."""
    return -one.worth, one.group.cluster_key


def _teach(
    connection: Connection, groups: list[RankedGroup], first: int, decided: Mapping[str, tuple[int, int]]
) -> list[RankedGroup]:
    """Return the groups, of which the ``first`` are ranked by what people decided on the kinds of their differences.

    Groups are compared, up to ``_MAX_TAUGHT``, until no other one could be among the first.

    Args:
        groups: Sorted by worth.
        decided: Number of approvals and of all decisions by kind.
    """
    if not decided or first < 1:
        return groups
    most = max(1.0, *(learn_from_decisions([kind], decided) for kind in decided))
    taught, at = list[RankedGroup](), 0
    while at < min(len(groups), _MAX_TAUGHT):
        if len(taught) >= first and taught[first - 1].worth >= most * groups[at].worth:
            break
        portion = groups[at : at + max(first, _FEWEST_COMPARED)]
        taught = sorted([*taught, *_compare(connection, portion, decided)], key=_rank)
        at += len(portion)
    return sorted([*taught, *groups[at:]], key=_rank)


def _compare(
    connection: Connection, groups: Sequence[RankedGroup], decided: Mapping[str, tuple[int, int]]
) -> list[RankedGroup]:
    """Return the groups with the kinds of their differences, and the worth that decisions on these give them."""
    rows = store.load_originals(connection, [id_ for one in groups for id_, _ in one.originals])
    compared = []
    for one in groups:
        kinds = list_kinds([store.read_text(rows[id_]) for id_, _ in one.originals], word_similarity)
        taught = learn_from_decisions((kind.partition(":")[0] for kind in kinds), decided)
        memory_type = rows[one.originals[0][0]].memory_type
        compared.append(replace(one, worth=one.worth * taught, kinds=kinds, memory_type=memory_type))
    return compared


def choose_waiting(
    pending: Sequence[Row[Any]], groups: Sequence[RankedGroup], limit: int
) -> tuple[list[Row[Any]], list[RankedGroup]]:
    """Return the pending suggestions that others are worth more than, and the groups to propose in their place.

    Together, those that stay and those that are new are the ``limit`` worth most. Of equals, those that wait stay.

    Args:
        pending: Rows of ``list_pending``.
        groups: Of a ranking.
    """
    everything: list[tuple[float, Row[Any] | RankedGroup]] = [*((row.worth or 0.0, row) for row in pending)]
    everything += [(one.worth, one) for one in groups]
    # The sort is stable: what waits is ahead of a new group that is worth the same.
    everything.sort(key=lambda entry: -entry[0])
    new = [one for _, one in everything[:limit] if isinstance(one, RankedGroup)]
    outranked = [one for _, one in everything[limit:] if not isinstance(one, RankedGroup)]
    return outranked, new


def build_suggestions(
    connection: Connection,
    groups: Sequence[RankedGroup],
    decided: Mapping[str, tuple[int, int]],
    *,
    max_chars: int,
) -> list[store.NewSuggestion]:
    """Return suggestions with texts that keep everything the originals say.

    Args:
        groups: Of a ranking.
        decided: Of that ranking.
        max_chars: Longest text, in characters.
    """
    new = [one for one in groups if one.kinds is None]
    compared = [*(one for one in groups if one.kinds is not None), *_compare(connection, new, decided)]
    rows = store.load_originals(connection, [id_ for one in compared for id_, _ in one.originals])
    texts = (merge_originals([rows[id_] for id_, _ in one.originals], max_chars=max_chars) for one in compared)
    return [_to_suggestion(one, merged.content) for one, merged in zip(compared, texts, strict=True)]


def _to_suggestion(one: RankedGroup, content: str) -> store.NewSuggestion:
    kinds = one.kinds or ()
    return store.NewSuggestion(
        cluster_key=one.group.cluster_key,
        originals=one.originals,
        fingerprint=one.fingerprint,
        content=content,
        lessons_learned=None,
        keywords=(),
        similarity=one.group.similarity,
        rationale=one.group.tell_rationale(kinds),
        worth=one.worth,
        difference_kinds=kinds,
        method="heuristic",
    )


def write_suggestions(
    connection: Connection, author: Author, suggestions: Sequence[store.NewSuggestion], *, now: datetime
) -> None:
    """Write the suggestions and their events."""
    job = {"job_id": str(author.job_id)} if author.job_id else {}
    ids = store.append_suggestions(connection, author, suggestions, now=now)
    append_events(
        connection, author.project_id, "suggestion.created", [{"suggestion_id": str(id_), **job} for id_ in ids]
    )


def refill_queue(
    engine: Engine,
    project_id: UUID,
    options: ConsolidationOptions,
    *,
    changed_by: str,
    rule: GroupRule | None = None,
) -> int:
    """Propose the next groups of the last run while there is room under ``review_limit``; return their number.

    Memories without vectors wait for the next run.

    Args:
        changed_by: Author of the new suggestions in the ledger.
        rule: Propose all groups that match it instead, whatever their number.
    """
    author = Author(project_id, None, changed_by)
    with engine.begin() as connection:
        # Two decisions at a time must not propose the same group.
        lock_active_keys(connection, [project_id])
        room = options.review_limit - store.count_suggestions(connection, project_id).get("pending", 0)
        if room <= 0 and rule is None:
            return 0
        ranking = _rank_last_run(connection, project_id, options, first=room if rule is None else 0)
        groups = ranking.groups[:room] if rule is None else _select(connection, ranking, rule)
        suggestions = build_suggestions(connection, groups, ranking.decided, max_chars=options.merge_max_chars)
        write_suggestions(connection, author, suggestions, now=datetime.now(UTC))
    return len(suggestions)


def count_beyond(engine: Engine, project_id: UUID, options: ConsolidationOptions, rule: GroupRule) -> int:
    """Return the number of groups that ``refill_queue`` would propose by a rule."""
    with engine.connect() as connection:
        ranking = _rank_last_run(connection, project_id, options, first=0)
        return len(_select(connection, ranking, rule))


def _rank_last_run(connection: Connection, project_id: UUID, options: ConsolidationOptions, *, first: int) -> Ranking:
    """Return the ranking of the groups of the last run; the order of the ``first`` counts."""
    groups = read_suggest_groups(load_clusters(connection, project_id, "suggest"))
    if not groups:
        return Ranking([], 0, 0, {})
    t_suggest = _load_threshold(connection, project_id, options)
    return rank_groups(connection, project_id, groups, first=first, scope=options.scope, t_suggest=t_suggest)


def _select(connection: Connection, ranking: Ranking, rule: GroupRule) -> list[RankedGroup]:
    """Return the groups that match a rule, of the ``MAX_COMPARED`` worth most that are similar enough."""
    # The tolerance is that of stored similarities, as in ``list_pending_ids``.
    least = None if rule.min_similarity is None else rule.min_similarity - 1e-6
    near = [one for one in ranking.groups if least is None or (one.group.similarity or 0.0) >= least]
    return [
        one
        for one in _compare(connection, near[:MAX_COMPARED], ranking.decided)
        if differs_only_in(one.kinds or (), rule.differ_only_in) and rule.memory_type in (None, one.memory_type)
    ]


def _load_threshold(connection: Connection, project_id: UUID, options: ConsolidationOptions) -> float:
    """Return ``t_suggest`` of the calibration in force, else of the model's profile."""
    model = load_embedder(options.embedding_model).name
    snapshot = load_calibration(connection, project_id, model)
    if snapshot is not None:
        return snapshot.thresholds["t_suggest"]
    return resolve_thresholds(model, options.model_dump(), centered=False)["t_suggest"]
