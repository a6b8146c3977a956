"""From groups of units to patterns, and from groups of patterns to principles: what is new is worded and written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.evidence import count_sessions, weigh_evidence
from consolidation_pipeline.core.memories import consolidated_id, content_hash, normalized_hash
from consolidation_pipeline.errors import BudgetExhaustedError, ModelUnavailableError
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store.abstractions import Held, UnitRow, load_held, load_sessions, load_unit_vectors
from consolidation_pipeline.store.apart import load_unwanted_groups
from consolidation_pipeline.store.graph import load_dimension
from consolidation_pipeline.store.jobs import append_event
from consolidation_pipeline.store.knowledge import DerivedMemory, Edge, write_derived
from consolidation_pipeline.store.llm_calls import sum_job_cost

# The number that ``abstraction_level`` has for each kind.
_LEVELS = {"pattern": 2, "principle": 3}


@dataclass(frozen=True)
class Group:
    """Units on one topic, the representative first, then the most similar to it. ``cohesion``: their mean cosine."""

    cluster_key: str
    units: tuple[UnitRow, ...]
    cohesion: float | None

    @property
    def leaves(self) -> list[UUID]:
        """Its raw memories, ascending, each once."""
        return sorted({leaf for unit in self.units for leaf in unit.leaves})


@dataclass(frozen=True)
class PlannedAbstraction:
    """A group that something is to be made of: a new row (``version`` None) or the next version of one there is.

    ``superseded``: (id, version) of other rows most of whose members are in the group.
    """

    id: UUID
    version: int | None
    group: Group
    superseded: tuple[tuple[UUID, int], ...]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a group has in common, in words. ``confidence`` in [0, 1] before evidence is weighed in.

    ``evidence``: (unit, quote). ``llm_confidence``: what a model said, None without one.
    """

    content: str
    pattern_type: str
    summary: str
    best_practices: Sequence[str]
    gotchas: Sequence[str]
    key_terms: Sequence[str]
    evidence: Sequence[tuple[UUID, str]]
    confidence: float
    needs_review: bool
    llm_confidence: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one planned group: what was said of it, or None where that was not sure enough, or an error."""

    planned: PlannedAbstraction
    said: Said | None
    error: str | None = None


@dataclass(frozen=True)
class Formed:
    """What a phase did, in groups. ``failures``: cluster key and error; ``stopped``: why it ended before its time."""

    groups: int = 0
    covered: int = 0
    changed: int = 0
    created: int = 0
    updated: int = 0
    superseded: int = 0
    needs_review: int = 0
    discarded: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    cost_usd: Decimal = Decimal(0)
    stopped: str | None = None


Author = Callable[[Sequence[PlannedAbstraction]], Iterator[Sequence[Outcome]]]
"""Says what groups have in common, a batch at a time: each is written in a transaction of its own."""


def plan_abstractions(slug: str, kind: str, groups: Sequence[Group], held: Sequence[Held]) -> list[PlannedAbstraction]:
    """The groups that say something new, those left out that a row there is covers.

    A row covers a group of its cluster key, and one all of whose members it has. A group that holds most of a row's
    members is that row grown; where it holds most of several, the largest grows and takes in the others.
    """
    standing = [row for row in held if row.is_active]
    keys = {row.cluster_key for row in standing}
    by_id = {row.id: row for row in held}
    having = defaultdict(list)
    for row in standing:
        for member in row.members:
            having[member].append(row.id)
    plans = []
    for group in groups:
        members = _members(kind, group)
        shared = Counter(id_ for member in members for id_ in having.get(member, ()))
        if group.cluster_key in keys or len(members) in shared.values():
            continue
        grown = [by_id[id_] for id_, count in shared.items() if 2 * count > len(by_id[id_].members)]
        plans.append(_plan(slug, kind, group, sorted(grown, key=lambda row: (-len(row.members), row.id)), by_id))
    return plans


def _members(kind: str, group: Group) -> list[UUID]:
    return sorted(unit.id for unit in group.units) if kind == "principle" else group.leaves


def _plan(slug: str, kind: str, group: Group, grown: Sequence[Held], known: Mapping[UUID, Held]) -> PlannedAbstraction:
    if grown:
        first, *others = grown
        return PlannedAbstraction(first.id, first.version, group, tuple((row.id, row.version) for row in others))
    units = [unit.id for unit in group.units]
    id_ = consolidated_id(slug, kind, units, ALGORITHM_VERSION)
    while id_ in known and known[id_].is_active:
        # That row began as this group and has grown into another one.
        id_ = consolidated_id(slug, kind, [*units, id_], ALGORITHM_VERSION)
    return PlannedAbstraction(id_, known[id_].version if id_ in known else None, group, ())


def form_abstractions(run: ProjectRun, kind: str, groups: Sequence[Group], author: Author) -> Formed:
    """Plan the groups of ``kind`` (pattern or principle), have ``author`` word them, and write what is sure enough.

    Where the budget or the model gives out, what was done stays, and the phase ends with the reason in ``stopped``.

    Raises:
        ConflictError: a row changed meanwhile; what was written before stays.
    """
    with run.engine.connect() as connection:
        held = load_held(connection, run.project.id, kind)
        unwanted = load_unwanted_groups(connection, run.project.id, kind)
    open_groups = [group for group in groups if group.cluster_key not in unwanted]
    plans = plan_abstractions(run.project.slug, kind, open_groups, held)
    outcomes: list[Outcome] = []
    stopped = None
    try:
        for batch in author(plans) if plans else ():
            outcomes += _write(run, kind, batch)
    except (BudgetExhaustedError, ModelUnavailableError) as error:
        # What was said before is paid for and stays; the next run asks for the rest.
        stopped = str(error)
        _note_stop(run, kind, error)
    with run.engine.connect() as connection:
        cost = sum_job_cost(connection, run.job_id, kind)
    formed = _count(groups, plans, outcomes, stopped=stopped, cost=cost)
    run.unfinished = run.unfinished or formed.stopped is not None or bool(formed.failures)
    return formed


def _note_stop(run: ProjectRun, kind: str, error: Exception) -> None:
    if isinstance(error, BudgetExhaustedError):
        payload = {"job_id": str(run.job_id), "purpose": kind, "reason": str(error)}
        with run.engine.begin() as connection:
            append_event(connection, run.project.id, "budget.exhausted", payload)


def _count(
    groups: Sequence[Group],
    plans: Sequence[PlannedAbstraction],
    outcomes: Sequence[Outcome],
    stopped: str | None,
    cost: Decimal,
) -> Formed:
    written = [outcome for outcome in outcomes if outcome.said is not None]
    return Formed(
        groups=len(groups),
        covered=len(groups) - len(plans),
        created=sum(outcome.planned.version is None for outcome in written),
        updated=sum(outcome.planned.version is not None for outcome in written),
        superseded=sum(len(outcome.planned.superseded) for outcome in written),
        needs_review=sum(outcome.said.needs_review for outcome in written if outcome.said is not None),
        discarded=sum(outcome.said is None and outcome.error is None for outcome in outcomes),
        failures=tuple((o.planned.group.cluster_key, o.error) for o in outcomes if o.error is not None),
        cost_usd=cost,
        stopped=stopped,
    )


def _write(run: ProjectRun, kind: str, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    told = [(outcome.planned, outcome.said) for outcome in outcomes if outcome.said is not None]
    if told:
        rows = _rows(run, kind, told)
        with run.engine.begin() as connection:
            write_derived(connection, run.author, rows, operation=kind, now=run.now)
    return outcomes


def _rows(run: ProjectRun, kind: str, told: Sequence[tuple[PlannedAbstraction, Said]]) -> list[DerivedMemory]:
    model = run.embedder.name
    with run.engine.connect() as connection:
        dimension = load_dimension(connection, run.project.id, model)
        ids = [unit.id for planned, _ in told for unit in planned.group.units]
        parents = load_unit_vectors(connection, ids, model, dimension)
        sessions = load_sessions(connection, (leaf for planned, _ in told for leaf in planned.group.leaves))
    vectors = run.embedder.embed([said.content for _, said in told])
    return [
        DerivedMemory(
            id=planned.id,
            version=planned.version,
            group_id=uuid4(),
            values=_values(kind, planned, said, sessions),
            vector=vector,
            model=model,
            source_ids=planned.group.leaves,
            lineage=[
                Edge(unit.id, unit.kind, round(float(parents[unit.id] @ vector), 6)) for unit in planned.group.units
            ],
            reason=f"what {len(planned.group.units)} {_UNIT_NAMES[kind]} have in common",
            superseded=planned.superseded,
        )
        for (planned, said), vector in zip(told, vectors, strict=True)
    ]


_UNIT_NAMES = {"pattern": "memories", "principle": "patterns"}


def _values(kind: str, planned: PlannedAbstraction, said: Said, sessions: Mapping[UUID, str | None]) -> dict[str, Any]:
    """Columns of the row, recomputed from all of its units; what was retired is active again.

    Accesses are the row's own once it is there, so an update leaves them alone.
    """
    group, units = planned.group, planned.group.units
    accessed = {} if planned.version is not None else {"last_accessed_at": _latest(u.last_accessed_at for u in units)}
    known = [unit.success for unit in units if unit.success is not None]
    witnesses = count_sessions(sessions.get(leaf) for leaf in group.leaves)
    return {
        "kind": kind,
        "abstraction_level": _LEVELS[kind],
        "content": said.content,
        "memory_type": units[0].memory_type,
        "pattern_type": said.pattern_type,
        "confidence_score": round(weigh_evidence(said.confidence, len(units), witnesses), 6),
        "llm_confidence": said.llm_confidence,
        "needs_review": said.needs_review,
        "details": {
            "summary": said.summary,
            "best_practices": list(said.best_practices),
            "gotchas": list(said.gotchas),
            "key_terms": list(said.key_terms),
            "evidence": [{"unit": str(unit), "quote": quote} for unit, quote in said.evidence],
        },
        "tags": sorted({tag for unit in units for tag in unit.tags}),
        "consolidation_method": "heuristic" if said.llm_confidence is None else "llm",
        **accessed,
        "importance": max(unit.importance for unit in units),
        "success": any(known) if known else None,
        "learned_at": min(unit.learned_at for unit in units),
        "cluster_key": group.cluster_key,
        "language": units[0].language,
        "content_hash": content_hash(said.content),
        "normalized_hash": normalized_hash(said.content),
        "files": sorted({path for unit in units for path in unit.files}),
        "superseded_by_id": None,
        "retired_at": None,
    }


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None)
