"""What the diagnosis finds in the database: indexes, vectors, models, budgets, its clock, its room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from uuid import UUID

from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.service.admin.findings import Finding, Status, listed
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import POOL_SIZE, Engine
from consolidation_pipeline.store.database.inspection import (
    IndexStatus,
    ServerLoad,
    VectorUsage,
    count_hash_mismatches,
    inspect_indexes,
    inspect_load,
    list_projects_over_budget,
    list_vector_usage,
)
from consolidation_pipeline.store.projects import Project, list_projects
from consolidation_pipeline.store.search.vector_indexes import MAX_DIMENSION, MIN_INDEXED_ROWS, VectorIndex

# Seconds between the clocks of this process and of the server. Decay, retries and budgets go by the one or the other.
SKEW_WARNING = 2.0
SKEW_PROBLEM = 60.0
# Rows of the outbox; those older than its retention are removed weekly.
MANY_EVENTS = 100_000


def check_store(
    engine: Engine, settings: Settings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Iterator[Finding]:
    """Everything that the database tells of itself; its schema is this version's."""
    with engine.connect() as connection:
        projects = {project.id: project for project in list_projects(connection)}
        uses = [use for use in list_vector_usage(connection) if use.project_id in projects]  # one may be new by now
        indexes = inspect_indexes(connection)
        unlike, stopped = count_hash_mismatches(connection), list_projects_over_budget(connection)
        before, load, after = clock(), inspect_load(connection), clock()
    yield _check_indexes(indexes)
    yield _check_search_indexes(indexes, projects, uses)
    yield from _check_vectors(projects, uses, unlike, settings)
    yield listed("budget", stopped, what="met a budget today: see `consolidation cost`", fine="none was met today")
    yield _check_clock(load.now, before, after)
    yield from _check_room(load)


def _check_indexes(indexes: IndexStatus) -> Finding:
    gone = [f"{name} is missing or incomplete: {statement}" for name, statement in indexes.missing.items()]
    return listed("indexes", gone, what="", fine="every index of the schema is there", status="problem")


def _check_search_indexes(indexes: IndexStatus, projects: Mapping[UUID, Project], uses: list[VectorUsage]) -> Finding:
    missing = [
        f"{use.memories:,} vectors of {use.model} in {projects[use.project_id].slug}"
        for use in uses
        if use.model and use.dimension and use.dimension <= MAX_DIMENSION and use.memories >= MIN_INDEXED_ROWS
        if VectorIndex(use.table, use.project_id, use.model, use.dimension).name not in indexes.complete
    ]
    missing += [f"what is left of {name}" for name in sorted(indexes.invalid - indexes.missing.keys())]
    what = "have no complete index, so that a search compares all; the next run builds it"
    return listed("search indexes", missing, what=what, fine="every project that is large enough has one")


def _check_vectors(
    projects: Mapping[UUID, Project], uses: list[VectorUsage], unlike: Mapping[str, int], settings: Settings
) -> Iterator[Finding]:
    raw = [use for use in uses if use.table == "task_memories"]
    waiting = [f"{use.memories} memories of {projects[use.project_id].slug}" for use in raw if use.model is None]
    yield listed("vectors", waiting, what="have no vector yet; the next run embeds them", fine="no vector is missing")
    models: dict[UUID, list[str]] = {}
    for use in uses:
        if use.model and use.model not in models.setdefault(use.project_id, []):
            models[use.project_id].append(use.model)
    mixed = [f"{' and '.join(sorted(found))} in {projects[id_].slug}" for id_, found in models.items() if found[1:]]
    yield listed("models", mixed, what="(never compared with each other)", fine="one embedding model per project")
    asked = {id_: effective_options(projects[id_], settings).embedding_model for id_ in models}
    stale = [
        f"{use.memories} vectors of {use.model} in {projects[use.project_id].slug}, which has {asked[use.project_id]}"
        for use in uses
        if use.model and use.model != load_embedder(asked[use.project_id]).name
    ]
    stale += [f"{count} vectors in {slug} of texts that have changed since" for slug, count in unlike.items()]
    what = "are stale; the next run embeds memories that are not archived anew"
    yield listed("stale vectors", stale, what=what, fine="every vector is of its project's model and text")


def _check_clock(theirs: datetime, before: datetime, after: datetime) -> Finding:
    """The server's clock was read between two looks at ours: what lies outside of them is skew for certain."""
    skew = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    status: Status = "problem" if skew > SKEW_PROBLEM else "warning" if skew > SKEW_WARNING else "ok"
    return Finding("clock", status, f"the database's clock and this machine's are {skew:.1f} s apart")


def _check_room(load: ServerLoad) -> Iterator[Finding]:
    yield Finding("database size", "ok", f"{load.database_bytes / 1e9:.2f} GB")
    left = load.max_connections - load.connections
    told = f"{load.connections} of {load.max_connections} connections of the server are in use"
    few = f"; a process of `serve` or a run takes up to {POOL_SIZE}" if left < POOL_SIZE else ""
    yield Finding("connections", "warning" if few else "ok", told + few)
    bloated = [f"{table} ({dead:,} dead rows, {live:,} live ones)" for table, (dead, live) in load.dead.items()]
    what = "need VACUUM: autovacuum is off, or an old transaction stands in its way"
    yield listed("bloat", bloated, what=what, fine="no table is mostly dead rows")
    many = [f"{load.events:,} events"] if load.events > MANY_EVENTS else []
    what = "are in the outbox: switch on the schedule weekly_audit_retention, which removes old ones"
    yield listed("outbox", many, what=what, fine=f"{load.events:,} events are kept")
