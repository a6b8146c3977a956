"""Supersessions phase: find which memories take the place of older ones, and keep their relations up to date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from consolidation_pipeline.core.knowledge.supersession import describe_supersession
from consolidation_pipeline.core.knowledge.supersession_search import FoundSupersession, find_supersessions
from consolidation_pipeline.core.memories.memories import relation_id
from consolidation_pipeline.core.memories.relation_types import SUPERSEDES, WITHDRAWN
from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.knowledge.supersession_judge import (
    JudgedSupersessions,
    judge_supersessions,
    load_judged,
)
from consolidation_pipeline.service.memory_tests.gate import write_checked
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.store.knowledge.supersessions import (
    DatedScope,
    Replacement,
    Replacements,
    StoredSupersession,
    SupersessionChange,
    list_dated_scopes,
    load_dated_memories,
    load_known_claims,
    load_replacements,
    load_supersessions,
    load_undone,
    mark_scopes_compared,
    write_supersessions,
)
from consolidation_pipeline.store.memories.memories import load_texts


@dataclass(frozen=True)
class SupersessionResult:
    """Result of the phase. ``judged``: what the supersession judge was asked; None without one.

    ``memories``: memories with a known date. ``compared``: those in scopes that changed since the last comparison.
    ``found``, ``confirmed``: relations that follow from these, and those of them that a rule confirms. ``added``,
    ``changed``, ``withdrawn``: relations that were written. ``proposed``: the added ones that wait for a person.
    """

    memories: int = 0
    compared: int = 0
    found: int = 0
    confirmed: int = 0
    added: int = 0
    proposed: int = 0
    changed: int = 0
    withdrawn: int = 0
    judged: JudgedSupersessions | None = None


def record_supersessions(run: ProjectRun) -> SupersessionResult:
    """Compare all raw memories of each scope, and store which of them supersede which.

    The relations follow from the texts, dates and writers of the memories alone, so they do not depend on the order in
    which these arrived, and from the answers of the project's supersession judge, if it has one. A scope where nothing
    has changed is not compared again. A relation that no longer follows is withdrawn. What a person confirmed, rejected
    or undid stays as it is. A run that applies a plan changes no relation: the next run without one does.
    """
    if run.plan is not None:
        return SupersessionResult()
    compared = _compare_memories(run, ask=True)
    new, changed, withdrawn = compared.new, compared.changed, compared.withdrawn
    refused: Sequence[SupersessionChange] = ()
    if compared.changes:
        _, refused = write_checked(
            run,
            "supersessions",
            compared.changes,
            lambda connection, chosen: write_supersessions(connection, run.author, chosen, now=run.now),
            lambda change: [change.newer_id, change.older_id],
        )
    if not refused and not all(one.is_compared for one in compared.scopes):  # Else the next run tries again.
        project, option, code = run.project.id, run.options.scope, describe_code()["digest"]
        with run.transaction() as connection:
            mark_scopes_compared(connection, project, compared.scopes, scope=option, code=code, known=compared.known)
    return SupersessionResult(
        memories=sum(one.size for one in compared.scopes),
        compared=compared.memories,
        found=compared.found,
        confirmed=compared.confirmed,
        added=len(new),
        proposed=sum(one.status == "candidate" for one in new),
        changed=len(changed),
        withdrawn=len(withdrawn),
        judged=compared.judged,
    )


def load_current_replacements(run: ProjectRun) -> Replacements:
    """Return the replacements that texts leave out: the stored ones, in a run that applies a plan those of the plan."""
    if run.plan is not None:
        return forecast_replacements(run)
    with run.reading() as connection:
        return load_replacements(connection, run.project.id)


def forecast_replacements(run: ProjectRun) -> Replacements:
    """Return the replacements as ``record_supersessions`` would leave them. Nothing is written."""
    changes = {one.id: one for one in _compare_memories(run).changes}
    with run.reading() as connection:
        stored = load_replacements(connection, run.project.id)
    after = {older: [one for one in found if one.id not in changes] for older, found in stored.items()}
    for change in changes.values():
        if change.status == "confirmed":
            found = after.setdefault(change.older_id, [])
            found.append(Replacement(change.id, change.newer_id, change.reason))
            found.sort()
    return after


@dataclass(frozen=True)
class _Comparison:
    """Comparison of the memories of the scopes that have changed, and the relations to write for it.

    ``memories``: number of those that were compared; ``known``: what is known of their texts, by scope; ``judged``:
    what the judge was asked.
    """

    scopes: Sequence[DatedScope]
    memories: int = 0
    found: int = 0
    confirmed: int = 0
    new: Sequence[SupersessionChange] = ()
    changed: Sequence[SupersessionChange] = ()
    withdrawn: Sequence[SupersessionChange] = ()
    known: Mapping[str, bytes] = field(default_factory=dict)
    judged: JudgedSupersessions | None = None

    @property
    def changes(self) -> list[SupersessionChange]:
        return [*self.new, *self.changed, *self.withdrawn]


def _compare_memories(run: ProjectRun, *, ask: bool = False) -> _Comparison:
    """Compare the memories of changed scopes. ``ask``: also ask the supersession judge."""
    project, option = run.project.id, run.options.scope
    code = describe_code()["digest"]
    with run.reading() as connection:
        scopes = list_dated_scopes(connection, project, scope=option, code=code)
        names = {one.scope for one in scopes if not one.is_compared}
        memories = load_dated_memories(connection, project, names, scope=option)
        known = load_known_claims(connection, project, names, code=code)
    compute = partial(compute_in_order, memories=len(memories))
    pairs, known = find_supersessions(memories, partial(_load_texts, run), known=known, apply=compute)
    judged = judge_supersessions(run, known) if ask else None
    with run.reading() as connection:
        # What rules find takes the place of an answer about the same memories.
        every = [*load_judged(run, connection), *pairs]
        if not names and not every:
            return _Comparison(scopes, judged=judged)
        found = {relation_id(run.project.slug, SUPERSEDES, one.newer_id, one.older_id): one for one in every}
        stored = {one.id: one for one in load_supersessions(connection, project, scope=option)}
        undone = load_undone(connection, found.keys() - stored.keys())
    own = [one for one in stored.values() if one.scope in names]
    return _Comparison(
        scopes,
        memories=len(memories),
        found=len(found),
        confirmed=sum(one.found.status == "confirmed" for one in found.values()),
        new=[_build(id_, one) for id_, one in found.items() if id_ not in stored and id_ not in undone],
        changed=list(_update(found, own)),
        withdrawn=list(_withdraw(found, own)),
        known=known,
        judged=judged,
    )


def _load_texts(run: ProjectRun, ids: Sequence[UUID]) -> Mapping[UUID, str]:
    """Return the texts of memories.

    Raises:
        ConflictError: Some were erased since the memories were listed.
    """
    with run.reading() as connection:
        texts = load_texts(connection, ids)
    if missing := sorted({*ids} - texts.keys()):
        message = f"{len(missing)} memories of project {run.project.slug!r} were erased while they were compared;"
        raise ConflictError(f"{message} the next run compares those that are left", tuple(map(str, missing)))
    return texts


def _build(id_: UUID, one: FoundSupersession, version: int | None = None) -> SupersessionChange:
    found = one.found
    return SupersessionChange(
        id_, one.newer_id, one.older_id, found.status, found.confidence, describe_supersession(found), version
    )


def _update(
    found: Mapping[UUID, FoundSupersession], stored: Iterable[StoredSupersession]
) -> Iterator[SupersessionChange]:
    """Yield the relations that follow for another reason than before, or again."""
    for one in stored:
        if one.is_manual or one.id not in found:
            continue
        change = _build(one.id, found[one.id], one.version)
        if (one.status, one.reason, one.confidence) != (change.status, change.reason, change.confidence):
            yield change


def _withdraw(
    found: Mapping[UUID, FoundSupersession], stored: Iterable[StoredSupersession]
) -> Iterator[SupersessionChange]:
    for one in stored:
        if not one.is_manual and one.id not in found and one.status != "rejected":
            reason = f"{WITHDRAWN}{one.reason}"
            yield SupersessionChange(one.id, one.id, one.id, "rejected", one.confidence, reason, one.version)
