"""Diagnosis of an installation: database, models, jobs, webhook, Dagster and its automation, spans, disk.

Each check yields findings. A check that cannot be made is a finding itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from uuid import UUID

from consolidation_pipeline.core.jit import COMPILING
from consolidation_pipeline.core.similarity.join_planner import KERNEL, find_kernel_problem, find_platform_problem
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.errors import ConsolidationError, InvalidWebhookError, SchemaOutOfDateError
from consolidation_pipeline.service.jobs.retry_policy import list_failing_jobs
from consolidation_pipeline.service.jobs.triggers import list_overdue
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.webhooks.webhook_config import find_addresses, read_webhook
from consolidation_pipeline.settings import PROJECT_ROOT, RESOURCE_DIR, Settings
from consolidation_pipeline.store.database.engine import (
    DAGSTER_SCHEMA,
    POOL_SIZE,
    Engine,
    check_schema,
    connect_engine,
    dagster_url,
    database_url,
)
from consolidation_pipeline.store.database.inspection import (
    IndexStatus,
    ServerLoad,
    ServerVersions,
    VectorUsage,
    count_hash_mismatches,
    hide_password,
    inspect_indexes,
    inspect_load,
    inspect_server,
    list_projects_over_budget,
    list_vector_usage,
)
from consolidation_pipeline.store.jobs.event_outbox import count_events
from consolidation_pipeline.store.jobs.jobs import list_live_jobs, list_pending_jobs
from consolidation_pipeline.store.projects import Project, list_projects
from consolidation_pipeline.store.search.vector_indexes import MAX_DIMENSION, MIN_INDEXED_ROWS, VectorIndex
from consolidation_pipeline.tracing import find_exporters, find_tracing_problem

# The embedded server stops writing when the disk is full. A run of 100,000 memories needs about 1 GB.
LOW_DISK_BYTES = 1_000_000_000
FULL_DISK_BYTES = 100_000_000
# A sensor launches pending jobs within a minute, and lost ones within ten. Runs before them may take longer.
LONG_WAIT = timedelta(minutes=30)
# A daemon sends a heartbeat every half minute.
DAEMON_ALIVE = timedelta(minutes=5)
# Seconds between this machine's clock and the server's. Decay, retries and budgets use one or the other.
SKEW_WARNING = 2.0
SKEW_PROBLEM = 60.0
# Rows of the outbox. Those past its retention are removed weekly.
MANY_EVENTS = 100_000
_MAX_LISTED = 10

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis."""

    check: str
    status: Status
    message: str


@dataclass(frozen=True)
class Automation:
    """Names of the sensors and schedules that are on and off. ``daemon_seen``: last heartbeat of Dagster's daemon."""

    on: Sequence[str]
    off: Sequence[str]
    daemon_seen: datetime | None


def describe_database(settings: Settings) -> str:
    """Return where memories are stored, with the password hidden."""
    if settings.database_url is None:
        return f"embedded Postgres in {settings.data_dir / 'postgres'}"
    return f"Postgres at {hide_password(database_url(settings))}"


def read_server(engine: Engine) -> ServerVersions:
    """Return the versions of the server and of the schema."""
    with engine.connect() as connection:
        return inspect_server(connection)


def diagnose(settings: Settings, find_automation: Callable[[], Automation]) -> Iterator[Finding]:
    """Run all checks and yield their findings. ``find_automation`` asks Dagster, which only ``defs`` knows."""
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "database": lambda: _check_database(settings),
        "embedding model": lambda: _check_model(settings),
        "similarity join": _check_join,
        "Dagster storage": lambda: _check_dagster_storage(settings),
        "Dagster files": _check_dagster_files,
        "automation": lambda: _check_automation(find_automation()),
        "spans": _check_spans,
        "disk": lambda: _check_disk(settings),
    }
    for name, check in checks.items():
        try:
            yield from check()
        except ConsolidationError as error:
            yield Finding(name, "problem", str(error))


def _list_finding(check: str, found: Sequence[str], *, what: str, fine: str, status: Status = "warning") -> Finding:
    """Return a finding that lists at most ten items of ``found``, followed by ``what``; or ``fine`` if it is empty."""
    if not found:
        return Finding(check, "ok", fine)
    more = f" and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
    return Finding(check, status, f"{', '.join(found[:_MAX_LISTED])}{more} {what}".rstrip())


# --- database ------------------------------------------------------------------------------------------------------


def _check_database(settings: Settings) -> Iterator[Finding]:
    engine = connect_engine(database_url(settings))
    try:
        check_schema(engine)
        outdated = None
    except SchemaOutOfDateError as error:
        outdated = str(error)
    server = read_server(engine)
    pgvector = f"pgvector {server.pgvector}" if server.pgvector else "pgvector not set up yet"
    yield Finding("database", "ok", f"{describe_database(settings)}: Postgres {server.postgres}, {pgvector}")
    if outdated is not None:
        # The embedded database is migrated when it is opened, any other one only by `init`.
        yield Finding("schema", "warning" if settings.database_url is None else "problem", outdated)
        return
    yield Finding("schema", "ok", f"at revision {server.revision}")
    if server.pgvector is None:
        yield Finding("extension", "problem", "the extension `vector` was dropped, and with it every vector")
        return
    yield from _check_projects(engine)
    yield from _check_jobs(engine)
    yield from check_store(engine, settings)
    yield from _check_webhook(engine, settings)


def _check_projects(engine: Engine) -> Iterator[Finding]:
    with engine.connect() as connection:
        projects = list_projects(connection)
        live = list_live_jobs(connection)
    stuck = [f"job {job.id} of {job.slug}" for job in live if job.status == "running" and not job.busy]
    disabled = [project.slug for project in projects if not project.consolidation_enabled]
    off = f", disabled: {', '.join(disabled)}" if disabled else ""
    yield Finding("projects", "ok", f"{len(projects)} projects{off}")
    yield _list_finding("jobs", stuck, what="died while running; the next run continues it", fine="no job is stuck")


def _check_jobs(engine: Engine) -> Iterator[Finding]:
    """Find dead jobs, and signs that sensors or schedules are off: waiting requests and overdue projects."""
    now = datetime.now(UTC)
    with engine.connect() as connection:
        dead = [f"{job.job} of {job.project} ({job.error})" for job in list_failing_jobs(connection) if job.dead]
        pending = [job for job in list_pending_jobs(connection) if not job.busy and now - job.created_at > LONG_WAIT]
    what = "failed too often: sensors leave it alone until its schedule or a person runs it"
    yield _list_finding("dead jobs", dead, what=what, fine="no job failed too often")
    waiting = [f"job {job.id} of {job.slug}, requested at {job.created_at:%Y-%m-%d %H:%M} UTC" for job in pending]
    what = "waits for a run: no daemon runs, or requested_jobs_sensor is off; `consolidation run --pending` runs it"
    yield _list_finding("requests", waiting, what=what, fine="no request waits for long")
    overdue = list_overdue(engine, now)
    what = "due for more than a day: no daemon runs, or nightly_consolidation is off"
    yield _list_finding("schedule", overdue, what=what, fine="no project is due for more than a day")


def check_store(
    engine: Engine, settings: Settings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Iterator[Finding]:
    """Check indexes, vectors, budgets, the clock and the load of a database whose schema is current."""
    with engine.connect() as connection:
        projects = {project.id: project for project in list_projects(connection)}
        usage = [one for one in list_vector_usage(connection) if one.project_id in projects]  # a project may be new
        indexes = inspect_indexes(connection)
        mismatches, over_budget = count_hash_mismatches(connection), list_projects_over_budget(connection)
        before, load, after = clock(), inspect_load(connection), clock()
    missing = [f"{name} is missing or incomplete: {statement}" for name, statement in indexes.missing.items()]
    yield _list_finding("indexes", missing, what="", fine="every index of the schema exists", status="problem")
    yield _check_search_indexes(indexes, projects, usage)
    yield from _check_vectors(projects, usage, mismatches, settings)
    what = "met a budget today: see `consolidation cost`"
    yield _list_finding("budget", over_budget, what=what, fine="no project met a budget today")
    yield _check_clock(load.now, before, after)
    yield from _check_load(load)


def _check_search_indexes(indexes: IndexStatus, projects: Mapping[UUID, Project], usage: list[VectorUsage]) -> Finding:
    missing = [
        f"{one.memories:,} vectors of {one.model} in {projects[one.project_id].slug}"
        for one in usage
        if one.model and one.dimension and one.dimension <= MAX_DIMENSION and one.memories >= MIN_INDEXED_ROWS
        if VectorIndex(one.table, one.project_id, one.model, one.dimension).name not in indexes.complete
    ]
    missing += [f"the incomplete index {name}" for name in sorted(indexes.invalid - indexes.missing.keys())]
    what = "have no complete index, so that a search compares every row; the next run builds it"
    return _list_finding("search indexes", missing, what=what, fine="every project that is large enough has one")


def _check_vectors(
    projects: Mapping[UUID, Project], usage: list[VectorUsage], mismatches: Mapping[str, int], settings: Settings
) -> Iterator[Finding]:
    raw = [one for one in usage if one.table == "task_memories"]
    waiting = [f"{one.memories} memories of {projects[one.project_id].slug}" for one in raw if one.model is None]
    what = "have no vector yet; the next run embeds them"
    yield _list_finding("vectors", waiting, what=what, fine="no vector is missing")
    models: dict[UUID, list[str]] = {}
    for one in usage:
        if one.model and one.model not in models.setdefault(one.project_id, []):
            models[one.project_id].append(one.model)
    mixed = [f"{' and '.join(sorted(found))} in {projects[id_].slug}" for id_, found in models.items() if found[1:]]
    what = "(never compared with each other)"
    yield _list_finding("models", mixed, what=what, fine="one embedding model per project")
    configured = {id_: effective_options(projects[id_], settings).embedding_model for id_ in models}
    stale = [
        f"{one.memories} vectors of {one.model} in {projects[one.project_id].slug}, "
        f"which has {configured[one.project_id]}"
        for one in usage
        if one.model and one.model != load_embedder(configured[one.project_id]).name
    ]
    stale += [f"{count} vectors in {slug} of texts that have changed since" for slug, count in mismatches.items()]
    what = "are stale; the next run embeds the memories that are not archived again"
    yield _list_finding("stale vectors", stale, what=what, fine="every vector is of its project's model and text")


def _check_clock(server_time: datetime, before: datetime, after: datetime) -> Finding:
    """Compare the server's time with this machine's time before and after it was read. Report only certain skew."""
    skew = max((before - server_time).total_seconds(), (server_time - after).total_seconds(), 0.0)
    status: Status = "problem" if skew > SKEW_PROBLEM else "warning" if skew > SKEW_WARNING else "ok"
    return Finding("clock", status, f"the database's clock and this machine's are {skew:.1f} s apart")


def _check_load(load: ServerLoad) -> Iterator[Finding]:
    yield Finding("database size", "ok", f"{load.database_bytes / 1e9:.2f} GB")
    left = load.max_connections - load.connections
    used = f"{load.connections} of {load.max_connections} connections of the server are in use"
    few = f"; a process of `serve` or a run takes up to {POOL_SIZE}" if left < POOL_SIZE else ""
    yield Finding("connections", "warning" if few else "ok", used + few)
    bloated = [f"{table} ({dead:,} dead rows, {live:,} live ones)" for table, (dead, live) in load.dead.items()]
    what = "need VACUUM: autovacuum is off, or an old transaction blocks it"
    yield _list_finding("bloat", bloated, what=what, fine="no table is mostly dead rows")
    many = [f"{load.events:,} events"] if load.events > MANY_EVENTS else []
    what = "are in the outbox: switch on the schedule weekly_audit_retention, which removes old ones"
    yield _list_finding("outbox", many, what=what, fine=f"{load.events:,} events are kept")


def _check_webhook(engine: Engine, settings: Settings) -> Iterator[Finding]:
    try:
        webhook = read_webhook(settings)
        addresses = find_addresses(webhook) if webhook else []
    except InvalidWebhookError as error:
        yield Finding("webhook", "problem", str(error))
        return
    except OSError:
        yield Finding("webhook", "problem", "the webhook's host is not found: see CONSOLIDATION_WEBHOOK_URL")
        return
    with engine.connect() as connection:
        events = count_events(connection)
    if webhook is None:
        yield Finding("webhook", "ok", "none is configured: events stay in the outbox")
        return
    failure = f"; the last attempt failed: {events.last_error}" if events.last_error else ""
    message = f"{webhook} ({addresses[0]}): {events.waiting} events wait, {events.given_up} were given up{failure}"
    yield Finding("webhook", "warning" if events.last_error else "ok", message)


# --- this process and its machine ----------------------------------------------------------------------------------


def _check_model(settings: Settings) -> Iterator[Finding]:
    embedder = load_embedder(settings.embedding_model or "local")
    if embedder.name != LOCAL_MODEL:
        yield Finding("embedding model", "ok", f"{embedder.name} (not tried: a call would be billed)")
        return
    dimension = embedder.embed(["Does the model load?"]).shape[1]
    yield Finding("embedding model", "ok", f"{embedder.name}, {dimension} dimensions, inside the package")


def _check_join() -> Iterator[Finding]:
    """Try the compiled kernel if it is in numba's cache. It is not compiled here, as most joins never need it."""
    if find_platform_problem() is None and not KERNEL.is_kept:
        unwritable = "cannot keep it: set NUMBA_CACHE_DIR to a folder that can be written"
        keeping = unwritable if KERNEL.folder is None else f"keeps it in {KERNEL.folder}"
        message = f"NumPy; a join that saves {COMPILING:.0f} s by a compiled kernel compiles it first, and {keeping}"
    else:
        reason = find_kernel_problem()
        message = "compiled for this processor" if reason is None else f"NumPy: {reason}"
    yield Finding("similarity join", "ok", message)


def _check_dagster_storage(settings: Settings) -> Iterator[Finding]:
    own = settings.dagster_postgres_url is not None
    beside = "embedded Postgres" if settings.database_url is None else f"schema {DAGSTER_SCHEMA} beside the memories"
    where = "DAGSTER_POSTGRES_URL" if own else beside
    yield Finding("Dagster storage", "ok", f"{where}: {hide_password(dagster_url(settings))}")


def _check_dagster_files() -> Iterator[Finding]:
    missing = [name for name in ("dagster.yaml", "workspace.yaml") if not (RESOURCE_DIR / name).is_file()]
    if missing:
        yield Finding("Dagster files", "problem", f"{' and '.join(missing)} not found in {RESOURCE_DIR}")
    else:
        yield Finding("Dagster files", "ok", f"dagster.yaml and workspace.yaml in {RESOURCE_DIR}")
    home = os.environ.get("DAGSTER_HOME")
    if home and Path(home).resolve() != PROJECT_ROOT:
        yield Finding("Dagster files", "warning", f"DAGSTER_HOME is {home}: the dagster.yaml there is used")


def _check_automation(found: Automation) -> Iterator[Finding]:
    if found.daemon_seen is None:
        message = "no daemon has run here: nothing starts by itself; `consolidation run --pending` runs what waits"
        yield Finding("automation", "ok", message)
        return
    if datetime.now(UTC) - found.daemon_seen > DAEMON_ALIVE:
        message = f"the daemon was last seen at {found.daemon_seen:%Y-%m-%d %H:%M} UTC: nothing starts by itself"
        yield Finding("automation", "warning", message)
        return
    yield _list_finding("automation", found.off, what="are off", fine=f"{', '.join(found.on)} are on")


def _check_spans() -> Iterator[Finding]:
    exporters, problem = find_exporters(), find_tracing_problem()
    fine = f"sent by {', '.join(exporters)}" if exporters else "none are sent: OTEL_EXPORTER_OTLP_ENDPOINT is not set"
    yield Finding("spans", "warning" if problem else "ok", problem or fine)


def _check_disk(settings: Settings) -> Iterator[Finding]:
    folder = next(parent for parent in (settings.data_dir, *settings.data_dir.resolve().parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    status: Status = "problem" if free < FULL_DISK_BYTES else "warning" if free < LOW_DISK_BYTES else "ok"
    yield Finding("disk", status, f"{free / 1e9:.1f} GB free for {settings.data_dir}")
