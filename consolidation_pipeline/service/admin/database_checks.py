"""Checks of the database: schema, jobs, indexes, vectors, budgets, clock, load, webhook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.errors import InvalidWebhookError, SchemaOutOfDateError
from consolidation_pipeline.service.admin.findings import Finding, Status, list_finding
from consolidation_pipeline.service.admin.size_checks import check_sizes
from consolidation_pipeline.service.jobs.retry_policy import list_failing_jobs
from consolidation_pipeline.service.jobs.triggers import list_overdue
from consolidation_pipeline.service.lineage.collector import is_configured
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.sources.connections import list_connected
from consolidation_pipeline.service.sources.update import find_failing
from consolidation_pipeline.service.webhooks.webhook_config import find_addresses, read_webhook
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import POOL_SIZE, Engine, check_schema, connect_engine, database_url
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
from consolidation_pipeline.store.search.index_upkeep import MIN_INDEXED_ROWS
from consolidation_pipeline.store.search.vector_indexes import MAX_DIMENSION, AbstractIndex, VectorIndex
from consolidation_pipeline.store.search.word_indexes import WordIndex

# A sensor launches pending jobs within a minute, and lost ones within ten. Runs before them may take longer.
LONG_WAIT = timedelta(minutes=30)
# Seconds between this machine's clock and the server's. Decay, retries and budgets use one or the other.
SKEW_WARNING = 2.0
SKEW_PROBLEM = 60.0
# Rows of the outbox. Those past its retention are removed weekly.
MANY_EVENTS = 100_000


def describe_database(settings: Settings) -> str:
    """Return where memories are stored, with the password hidden."""
    if settings.database_url is None:
        return f"embedded Postgres in {settings.data_dir / 'postgres'}"
    return f"Postgres at {hide_password(database_url(settings))}"


def read_server(engine: Engine) -> ServerVersions:
    """Return the versions of the server and of the schema."""
    with engine.connect() as connection:
        return inspect_server(connection)


def check_database(settings: Settings) -> Iterator[Finding]:
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
    yield _check_sources(engine)
    yield from check_store(engine, settings)
    yield from check_sizes(engine)
    yield from _check_webhook(engine, settings)
    yield from _check_openlineage(engine)


def _check_projects(engine: Engine) -> Iterator[Finding]:
    with engine.connect() as connection:
        projects = list_projects(connection)
        live = list_live_jobs(connection)
    stuck = [f"job {job.id} of {job.slug}" for job in live if job.status == "running" and not job.busy]
    disabled = [project.slug for project in projects if not project.consolidation_enabled]
    off = f", disabled: {', '.join(disabled)}" if disabled else ""
    yield Finding("projects", "ok", f"{counted(len(projects), 'project')}{off}")
    yield list_finding("jobs", stuck, what="died while running; the next run continues it", fine="no job is stuck")


def _check_jobs(engine: Engine) -> Iterator[Finding]:
    """Find dead jobs, and signs that sensors or schedules are off: waiting requests and overdue projects."""
    now = datetime.now(UTC)
    with engine.connect() as connection:
        dead = [f"{job.job} of {job.project} ({job.error})" for job in list_failing_jobs(connection) if job.dead]
        pending = [job for job in list_pending_jobs(connection) if not job.busy and now - job.created_at > LONG_WAIT]
    what = "failed too often: sensors leave it alone until its schedule or a person runs it"
    yield list_finding("dead jobs", dead, what=what, fine="no job failed too often")
    waiting = [f"job {job.id} of {job.slug}, requested at {job.created_at:%Y-%m-%d %H:%M} UTC" for job in pending]
    off = "no daemon runs, or consolidation_requested_jobs_sensor is off"
    what = f"waits for a run: {off}; `consolidation run --pending` runs it"
    yield list_finding("requests", waiting, what=what, fine="no request waits for long")
    overdue = list_overdue(engine, now)
    what = "due for more than a day: no daemon runs, or consolidation_nightly is off"
    yield list_finding("schedule", overdue, what=what, fine="no project is due for more than a day")


def _check_sources(engine: Engine) -> Finding:
    failing = [(source.name, find_failing(source)) for source in list_connected(engine)]
    found = [f"{name}: {one.describe()}" for name, one in failing if one is not None]
    return list_finding("connected stores", found, what="", fine="the last update of every connected store succeeded")


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
    yield list_finding("indexes", missing, what="", fine="every index of the schema exists", status="problem")
    yield _check_search_indexes(indexes, projects, usage)
    yield from _check_vectors(projects, usage, mismatches, settings)
    what = "met a budget today: see `consolidation cost`"
    yield list_finding("budget", over_budget, what=what, fine="no project met a budget today")
    yield _check_clock(load.now, before, after)
    yield from _check_load(load)


def _check_search_indexes(indexes: IndexStatus, projects: Mapping[UUID, Project], usage: list[VectorUsage]) -> Finding:
    missing = [
        f"{count:,} vectors of {one.model} in {projects[one.project_id].slug}"
        for one in usage
        for kind, count in ((VectorIndex, one.indexed), (AbstractIndex, one.abstract))
        if one.model and one.dimension and one.dimension <= MAX_DIMENSION and count >= MIN_INDEXED_ROWS
        if not kind(one.table, one.project_id, one.model, one.dimension).is_among(indexes.complete)
    ]
    memories: Counter[tuple[str, UUID]] = Counter()
    for one in usage:
        memories[one.table, one.project_id] += one.memories
    missing += [
        f"the words of {count:,} memories in {projects[project_id].slug}"
        for (table, project_id), count in memories.items()
        if count >= MIN_INDEXED_ROWS and WordIndex(table, project_id).name not in indexes.complete
    ]
    missing += [f"the incomplete index {name}" for name in sorted(indexes.invalid - indexes.missing.keys())]
    what = "have no complete index, so that a search reads every row; the next run builds it"
    return list_finding("search indexes", missing, what=what, fine="every project that is large enough has one")


def _check_vectors(
    projects: Mapping[UUID, Project], usage: list[VectorUsage], mismatches: Mapping[str, int], settings: Settings
) -> Iterator[Finding]:
    raw = [one for one in usage if one.table == "task_memories"]
    waiting = [f"{one.memories} memories of {projects[one.project_id].slug}" for one in raw if one.model is None]
    what = "have no vector yet; the next run embeds them"
    yield list_finding("vectors", waiting, what=what, fine="no vector is missing")
    models: dict[UUID, list[str]] = {}
    for one in usage:
        if one.model and one.model not in models.setdefault(one.project_id, []):
            models[one.project_id].append(one.model)
    mixed = [f"{' and '.join(sorted(found))} in {projects[id_].slug}" for id_, found in models.items() if found[1:]]
    what = "(never compared with each other)"
    yield list_finding("models", mixed, what=what, fine="one embedding model per project")
    configured = {id_: effective_options(projects[id_], settings).embedding_model for id_ in models}
    stale = [
        f"{one.memories} vectors of {one.model} in {projects[one.project_id].slug}, "
        f"which has {configured[one.project_id]}"
        for one in usage
        if one.model and one.model != load_embedder(configured[one.project_id]).name
    ]
    stale += [f"{count} vectors in {slug} of texts that have changed since" for slug, count in mismatches.items()]
    what = "are stale; the next run embeds the memories that are not archived again"
    yield list_finding("stale vectors", stale, what=what, fine="every vector is of its project's model and text")


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
    yield list_finding("bloat", bloated, what=what, fine="no table is mostly dead rows")
    many = [f"{load.events:,} events"] if load.events > MANY_EVENTS else []
    small = load.search_index_bytes > load.shared_buffers
    needed = f"the indexes that searches read have {load.search_index_bytes / 1e6:.0f} MB"
    found = f"shared_buffers is {load.shared_buffers / 1e6:.0f} MB, {needed}"
    advice = "; searches are faster if it holds them" if small else ""
    yield Finding("server memory", "warning" if small else "ok", found + advice)
    what = "are in the outbox: `consolidation prune` or its weekly schedule removes old ones"
    yield list_finding("outbox", many, what=what, fine=f"{load.events:,} events are kept")


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
        events = count_events(connection, receiver="webhook")
    if webhook is None:
        yield Finding("webhook", "ok", "none is configured: events stay in the outbox")
        return
    failure = f"; the last attempt failed: {events.last_error}" if events.last_error else ""
    message = f"{webhook} ({addresses[0]}): {events.waiting} events wait, {events.given_up} were given up{failure}"
    yield Finding("webhook", "warning" if events.last_error else "ok", message)


def _check_openlineage(engine: Engine) -> Iterator[Finding]:
    """Yield nothing if no collector is configured: few want one."""
    if not is_configured():
        return
    with engine.connect() as connection:
        events = count_events(connection, receiver="openlineage")
    failure = f"; the last attempt failed: {events.last_error}" if events.last_error else ""
    message = f"{events.delivered} events delivered, {events.waiting} wait, {events.given_up} were given up{failure}"
    yield Finding("openlineage", "warning" if events.last_error else "ok", message)
