"""From groups of units to patterns, and from groups of patterns to principles: what is new is worded and written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.knowledge.confidence import count_sessions, weigh_evidence
from consolidation_pipeline.core.knowledge.majority import most_frequent
from consolidation_pipeline.core.memories.memories import LEVELS, content_hash, normalized_hash
from consolidation_pipeline.errors import BudgetExhaustedError, ModelUnavailableError
from consolidation_pipeline.service.knowledge.reconcile import (
    GroupIds,
    TargetRow,
    choose_context_groups,
    find_superseded_rows,
    find_target_rows,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.knowledge.abstractions import (
    ExistingRow,
    UnitRow,
    load_existing_rows,
    load_sessions,
    load_unit_vectors,
    load_units,
    supersede_rows,
)
from consolidation_pipeline.store.knowledge.merged_memories import DerivedMemory, LineageEdge, write_derived
from consolidation_pipeline.store.ledger.cannot_link import load_unwanted_groups
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

_UNIT_NAMES = {"pattern": "memories", "principle": "patterns"}


@dataclass(frozen=True)
class Group:
    """Units on one topic, the representative first, then the most similar to it. ``cohesion``: their mean cosine.

    ``is_context``: the group tells what sets others apart.
    """

    cluster_key: str
    units: tuple[UnitRow, ...]
    cohesion: float | None
    is_context: bool = True

    @cached_property
    def leaves(self) -> list[UUID]:
        """Its raw memories, ascending, each once."""
        return sorted({leaf for unit in self.units for leaf in unit.leaves}, key=attrgetter("int"))


@dataclass(frozen=True)
class PlannedAbstraction:
    """A group that something is to be made of, and the row it is written to."""

    place: TargetRow
    group: Group

    def reason(self, kind: str) -> str:
        """Why it is made, in words."""
        return f"what {len(self.group.units)} {_UNIT_NAMES[kind]} have in common"


@dataclass(frozen=True, kw_only=True)
class DraftText:
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
    said: DraftText | None
    error: str | None = None


@dataclass(frozen=True)
class DeriveResult:
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
    stopped: str | None = None


Author = Callable[[Sequence[Group], Sequence[PlannedAbstraction]], Iterator[Sequence[Outcome]]]
"""Given groups, and those of them to be worded, says what the latter have in common, a batch at a time: each is written
in a transaction of its own."""


def derive_abstractions(run: ProjectRun, kind: str, outlines: Sequence[GroupIds], author: Author) -> DeriveResult:
    """Plan the groups of ``kind`` (pattern or principle), have ``author`` word them, and write what is sure enough.

    Texts are loaded only where there is something to word. Rows that no group needs any more are retired with what took
    their place. Where the budget or the model gives out, what was done stays, and the phase ends with the reason in
    ``stopped``.

    Raises:
        ConflictError: a row changed meanwhile; what was written before stays.
    """
    present = frozenset(outline.cluster_key for outline in outlines)
    with run.writing() as connection:
        held = load_existing_rows(connection, run.project.id, kind)
        superseded = _supersede_outgrown(connection, run, kind, held, present=present)
        if superseded:
            held = load_existing_rows(connection, run.project.id, kind)
        places, groups = _plan(connection, run, kind, outlines, held)
    plans = [PlannedAbstraction(places[one.cluster_key], one) for one in groups if one.cluster_key in places]
    awaited = {id_ for place in places.values() for id_ in (place.id, *(row for row, _ in place.superseded))}
    outcomes: list[Outcome] = []
    stopped = None
    try:
        for batch in author(groups, plans) if plans else ():
            superseded += _write(run, kind, batch, present=present, awaited=awaited)
            outcomes += batch
    except (BudgetExhaustedError, ModelUnavailableError) as error:
        # What was said before is paid for and stays; the next run asks for the rest.
        stopped = run.note_stop(kind, error)
    formed = replace(
        _count(outcomes),
        groups=len(outlines),
        covered=len(outlines) - len(places),
        changed=len(places) - len(plans),
        superseded=superseded,
        stopped=stopped,
    )
    run.unfinished = run.unfinished or bool(formed.failures)
    return formed


def _plan(
    connection: Connection, run: ProjectRun, kind: str, outlines: Sequence[GroupIds], held: Sequence[ExistingRow]
) -> tuple[dict[str, TargetRow], list[Group]]:
    """Where each new group goes, by cluster key; these groups with their texts, and others to tell them apart."""
    places = place_groups(connection, run, kind, outlines, held)
    shown = show_groups(outlines, places)
    ids = {id_ for one in shown for id_ in one.outline.units}
    return places, group_units(shown, load_units(connection, ids)) if ids else []


def place_groups(
    connection: Connection, run: ProjectRun, kind: str, outlines: Sequence[GroupIds], held: Sequence[ExistingRow]
) -> dict[str, TargetRow]:
    """Where each group goes that the run may write and says something new beside the rows ``held``, by cluster key."""
    unwanted = load_unwanted_groups(connection, run.project.id, kind)
    wanted = [outline for outline in outlines if outline.cluster_key not in unwanted]
    places = find_target_rows(run.project.slug, kind, wanted, held)
    return {key: place for key, place in places.items() if run.may_write(place.id)}


@dataclass(frozen=True)
class ContextGroup:
    """A group whose texts are read; ``is_context``: to tell what sets others apart."""

    outline: GroupIds
    is_context: bool


def show_groups(outlines: Sequence[GroupIds], places: Collection[str]) -> list[ContextGroup]:
    """The groups to be worded, by cluster key in ``places``, and those that they are set apart from; none for none."""
    context = choose_context_groups(outlines) if places else set()
    return [ContextGroup(one, one.cluster_key in context) for one in outlines if one.cluster_key in {*context, *places}]


def group_units(shown: Sequence[ContextGroup], units: Mapping[UUID, UnitRow]) -> list[Group]:
    """The groups with their texts; one that lost a unit meanwhile is left to the next run."""
    whole = [(one.outline, one.is_context) for one in shown if units.keys() >= set(one.outline.units)]
    return [
        Group(outline.cluster_key, tuple(units[id_] for id_ in outline.units), outline.cohesion, is_context)
        for outline, is_context in whole
    ]


def _supersede_outgrown(
    connection: Connection,
    run: ProjectRun,
    kind: str,
    held: Sequence[ExistingRow],
    *,
    present: Collection[str],
    awaited: Collection[UUID] = (),
) -> int:
    """Retire what ``find_superseded_rows`` finds, but for rows that are still to be written; returns how many."""
    found = find_superseded_rows(present, held)
    outgrown = [(row, by) for row, by in found if row.id not in awaited and run.may_write(row.id)]
    supersede_rows(connection, run.author, outgrown, operation=kind, now=run.now)
    return len(outgrown)


def _count(outcomes: Sequence[Outcome]) -> DeriveResult:
    written = [outcome for outcome in outcomes if outcome.said is not None]
    return DeriveResult(
        created=sum(outcome.planned.place.version is None for outcome in written),
        updated=sum(outcome.planned.place.version is not None for outcome in written),
        needs_review=sum(outcome.said.needs_review for outcome in written if outcome.said is not None),
        discarded=sum(outcome.said is None and outcome.error is None for outcome in outcomes),
        failures=tuple((o.planned.group.cluster_key, o.error) for o in outcomes if o.error is not None),
    )


def _write(
    run: ProjectRun, kind: str, outcomes: Sequence[Outcome], *, present: Collection[str], awaited: Collection[UUID]
) -> int:
    """Write what was said, and retire what that takes the place of; returns how many rows were retired."""
    told = [(outcome.planned, outcome.said) for outcome in outcomes if outcome.said is not None]
    if not told:
        return 0
    rows = _rows(run, kind, told)
    with run.writing() as connection:
        write_derived(connection, run.author, rows, operation=kind, now=run.now)
        held = load_existing_rows(connection, run.project.id, kind)
        outgrown = _supersede_outgrown(connection, run, kind, held, present=present, awaited=awaited)
    return sum(len(row.superseded) for row in rows) + outgrown


def _rows(run: ProjectRun, kind: str, told: Sequence[tuple[PlannedAbstraction, DraftText]]) -> list[DerivedMemory]:
    model = run.embedder.name
    with run.engine.connect() as connection:
        dimension = load_dimension(connection, run.project.id, model)
        ids = [unit.id for planned, _ in told for unit in planned.group.units]
        parents = load_unit_vectors(connection, ids, model, dimension)
        sessions = load_sessions(connection, (leaf for planned, _ in told for leaf in planned.group.leaves))
    vectors = run.embedder.embed([said.content for _, said in told])
    return [
        DerivedMemory(
            id=planned.place.id,
            version=planned.place.version,
            group_id=uuid4(),
            values=build_abstraction_columns(kind, planned, said, sessions),
            vector=vector,
            model=model,
            source_ids=planned.group.leaves,
            lineage=[
                LineageEdge(unit.id, unit.kind, round(float(parents[unit.id] @ vector), 6))
                for unit in planned.group.units
            ],
            reason=planned.reason(kind),
            superseded=planned.place.superseded,
        )
        for (planned, said), vector in zip(told, vectors, strict=True)
    ]


def build_abstraction_columns(
    kind: str, planned: PlannedAbstraction, said: DraftText, sessions: Mapping[UUID, str]
) -> dict[str, Any]:
    """Columns of the row, recomputed from all of its units; what was retired is active again.

    Accesses are the row's own once it is there, so an update leaves them alone.
    """
    group, units = planned.group, planned.group.units
    accessed = (
        {} if planned.place.version is not None else {"last_accessed_at": _latest(u.last_accessed_at for u in units)}
    )
    known = [unit.success for unit in units if unit.success is not None]
    witnesses = count_sessions(sessions.get(leaf) for leaf in group.leaves)
    return {
        "kind": kind,
        "abstraction_level": LEVELS[kind],
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
        "language": most_frequent(unit.language for unit in units),
        "content_hash": content_hash(said.content),
        "normalized_hash": normalized_hash(said.content),
        "files": sorted({path for unit in units for path in unit.files}),
        "superseded_by_id": None,
        "retired_at": None,
    }


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None)
