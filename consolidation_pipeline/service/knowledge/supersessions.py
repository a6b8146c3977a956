"""Supersessions phase: find which memories take the place of older ones, and keep their relations up to date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from consolidation_pipeline.core.knowledge.supersession import Supersession
from consolidation_pipeline.core.knowledge.supersession_search import FoundSupersession, find_supersessions
from consolidation_pipeline.core.memories.memories import relation_id
from consolidation_pipeline.core.memories.relation_types import SUPERSEDES
from consolidation_pipeline.service.memory_tests.gate import write_checked
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.store.knowledge.supersessions import (
    StoredSupersession,
    SupersessionChange,
    load_dated_memories,
    load_supersessions,
    load_undone,
    write_supersessions,
)

# Relations per transaction step.
BATCH_ROWS = 10_000
# How the reason of a relation begins that no longer follows from the memories, and may come back if it does again.
WITHDRAWN = "withdrawn: "
_SHOWN_CHARS = 160


@dataclass(frozen=True)
class SupersessionResult:
    """Result of the phase.

    ``memories``: memories with a known date. ``found``, ``confirmed``: relations that follow from them, and those of
    them that a rule confirms. ``added``, ``changed``, ``withdrawn``: relations that were written.
    """

    memories: int
    found: int
    confirmed: int
    added: int
    changed: int
    withdrawn: int


def record_supersessions(run: ProjectRun) -> SupersessionResult:
    """Compare all raw memories of each scope, and store which of them supersede which.

    The relations follow from the texts, dates and writers of the memories alone, so they do not depend on the order in
    which these arrived. A relation that no longer follows is withdrawn. What a person confirmed, rejected or undid
    stays as it is.
    """
    with run.reading() as connection:
        memories = load_dated_memories(connection, run.project.id, scope=run.options.scope)
    found = {
        relation_id(run.project.slug, SUPERSEDES, one.newer_id, one.older_id): one
        for one in find_supersessions(memories, apply=partial(compute_in_order, memories=len(memories)))
    }
    with run.reading() as connection:
        stored = {one.id: one for one in load_supersessions(connection, run.project.id)}
        undone = load_undone(connection, found.keys() - stored.keys())
        new = [_build(id_, one) for id_, one in found.items() if id_ not in stored and id_ not in undone]
        changed = list(_update(found, stored.values()))
        withdrawn = list(_withdraw(found, stored.values()))
    if new or changed or withdrawn:
        write_checked(
            run,
            "supersessions",
            [*new, *changed, *withdrawn],
            lambda connection, chosen: write_supersessions(connection, run.author, chosen, now=run.now),
            lambda change: [change.newer_id, change.older_id],
        )
    confirmed = sum(one.found.status == "confirmed" for one in found.values())
    return SupersessionResult(len(memories), len(found), confirmed, len(new), len(changed), len(withdrawn))


def _build(id_: UUID, one: FoundSupersession, version: int | None = None) -> SupersessionChange:
    found = one.found
    return SupersessionChange(
        id_, one.newer_id, one.older_id, found.status, found.confidence, _describe(found), version
    )


def _describe(found: Supersession) -> str:
    return f"{found.rule}: {_shorten(found.was)} -> {_shorten(found.now)}"


def _shorten(sentence: str) -> str:
    return sentence if len(sentence) <= _SHOWN_CHARS else sentence[: _SHOWN_CHARS - 2].rstrip() + " …"


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
