"""What is in force and what is wrong: database, models, jobs, webhook, Dagster and its automation, spans, disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from consolidation_pipeline.core.similarity.join_planner import why_no_kernel
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.errors import ConsolidationError, InvalidWebhookError, SchemaOutOfDateError
from consolidation_pipeline.service.admin.database_checks import check_store
from consolidation_pipeline.service.admin.findings import Finding, Status, listed
from consolidation_pipeline.service.jobs.retry_policy import list_failing_jobs
from consolidation_pipeline.service.jobs.triggers import list_overdue
from consolidation_pipeline.service.webhooks.webhook_config import find_addresses, read_webhook
from consolidation_pipeline.settings import PROJECT_ROOT, RESOURCE_DIR, Settings
from consolidation_pipeline.store.database.engine import Engine, check_schema, connect_engine, dagster_url, database_url
from consolidation_pipeline.store.database.inspection import ServerVersions, hide_password, inspect_server
from consolidation_pipeline.store.jobs.event_outbox import count_events
from consolidation_pipeline.store.jobs.jobs import list_live_jobs, list_pending_jobs
from consolidation_pipeline.store.projects import list_projects
from consolidation_pipeline.tracing import find_exporters, find_tracing_problem

# The embedded server stops taking writes when the disk is full; a run of 100,000 memories needs about 1 GB.
LOW_DISK_BYTES = 1_000_000_000
FULL_DISK_BYTES = 100_000_000
# A sensor launches what is pending within a minute, what was lost within ten; runs ahead of it may take longer.
WAITED_LONG = timedelta(minutes=30)

# A daemon tells every half minute that it is alive.
DAEMON_ALIVE = timedelta(minutes=5)


@dataclass(frozen=True)
class Automation:
    """Sensors and schedules by whether they are on; ``daemon_seen``: when their daemon was last alive, None = never."""

    on: Sequence[str]
    off: Sequence[str]
    daemon_seen: datetime | None


def describe_database(settings: Settings) -> str:
    """Where memories live, the password hidden."""
    if settings.database_url is None:
        return f"embedded Postgres in {settings.data_dir / 'postgres'}"
    return f"Postgres at {hide_password(database_url(settings))}"


def read_server(engine: Engine) -> ServerVersions:
    """Versions of the server and the schema's revision."""
    with engine.connect() as connection:
        return inspect_server(connection)


def diagnose(settings: Settings, find_automation: Callable[[], Automation]) -> Iterator[Finding]:
    """Check everything, one finding after the other; a check that cannot be made is a problem itself.

    ``find_automation`` asks Dagster, which is unknown here, for its sensors and schedules.
    """
    checks: list[tuple[str, Callable[[Settings], Iterator[Finding]]]] = [
        ("database", _check_database),
        ("embedding model", _check_model),
        ("similarity join", _check_join),
        ("Dagster storage", _check_dagster_storage),
        ("Dagster files", _check_dagster_files),
        ("automation", lambda _: _check_automation(find_automation())),
        ("spans", _check_spans),
        ("disk", _check_disk),
    ]
    for name, check in checks:
        try:
            yield from check(settings)
        except ConsolidationError as error:
            yield Finding(name, "problem", str(error))


def _check_database(settings: Settings) -> Iterator[Finding]:
    engine = connect_engine(database_url(settings))
    try:
        check_schema(engine)
        outdated = None
    except SchemaOutOfDateError as error:
        outdated = str(error)
    server = read_server(engine)
    vector = f"pgvector {server.pgvector}" if server.pgvector else "pgvector not set up yet"
    yield Finding("database", "ok", f"{describe_database(settings)}: Postgres {server.postgres}, {vector}")
    if outdated is not None:
        # The embedded database is migrated by whatever opens it; another one only by `init`.
        yield Finding("schema", "warning" if settings.database_url is None else "problem", outdated)
        return
    yield Finding("schema", "ok", f"at revision {server.revision}")
    if server.pgvector is None:
        yield Finding("extension", "problem", "the extension `vector` was dropped, and with it every vector")
        return
    yield from _check_contents(engine)
    yield from _check_waiting(engine)
    yield from check_store(engine, settings)
    yield from _check_webhook(engine, settings)


def _check_waiting(engine: Engine) -> Iterator[Finding]:
    """Dead jobs, requests that nobody launches, projects that no schedule takes: so it shows that sensors are off."""
    now = datetime.now(UTC)
    with engine.connect() as connection:
        dead = [f"{job.job} of {job.project} ({job.error})" for job in list_failing_jobs(connection) if job.dead]
        pending = [job for job in list_pending_jobs(connection) if not job.busy and now - job.created_at > WAITED_LONG]
    left = "failed too often: sensors leave it alone until its schedule or a person runs it"
    yield listed("dead jobs", dead, what=left, fine="no job failed too often")
    waiting = [f"job {job.id} of {job.slug}, asked for at {job.created_at:%Y-%m-%d %H:%M} UTC" for job in pending]
    off = "waits for a run: no daemon is there, or requested_jobs_sensor is off; `consolidation run --pending` does it"
    yield listed("requests", waiting, what=off, fine="no request waits for long")
    due = list_overdue(engine, now)
    late = "due for more than a day: no daemon is there, or nightly_consolidation is off"
    yield listed("schedule", due, what=late, fine="no project is due for more than a day")


def _check_contents(engine: Engine) -> Iterator[Finding]:
    with engine.connect() as connection:
        projects = list_projects(connection)
        dead = [job for job in list_live_jobs(connection) if job.status == "running" and not job.busy]
    disabled = [project.slug for project in projects if not project.consolidation_enabled]
    off = f", disabled: {', '.join(disabled)}" if disabled else ""
    yield Finding("projects", "ok", f"{len(projects)} projects{off}")
    stuck = [f"job {job.id} of {job.slug}" for job in dead]
    yield listed("jobs", stuck, what="died while running; the next run goes on from there", fine="no job is stuck")


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
    wrong = f"; the last try failed: {events.last_error}" if events.last_error else ""
    told = f"{webhook} ({addresses[0]}): {events.waiting} events wait, {events.given_up} were given up{wrong}"
    yield Finding("webhook", "warning" if events.last_error else "ok", told)


def _check_model(settings: Settings) -> Iterator[Finding]:
    embedder = load_embedder(settings.embedding_model or "local")
    if embedder.name != LOCAL_MODEL:
        yield Finding("embedding model", "ok", f"{embedder.name} (not tried: a call would be billed)")
        return
    dimension = embedder.embed(["Does the model load?"]).shape[1]
    yield Finding("embedding model", "ok", f"{embedder.name}, {dimension} dimensions, inside the package")


def _check_join(settings: Settings) -> Iterator[Finding]:
    del settings
    reason = why_no_kernel()
    yield Finding("similarity join", "ok", "compiled for this processor" if reason is None else f"NumPy: {reason}")


def _check_dagster_storage(settings: Settings) -> Iterator[Finding]:
    where = "DAGSTER_POSTGRES_URL" if settings.dagster_postgres_url is not None else "embedded Postgres"
    yield Finding("Dagster storage", "ok", f"{where}: {hide_password(dagster_url(settings))}")


def _check_dagster_files(settings: Settings) -> Iterator[Finding]:
    del settings
    missing = [name for name in ("dagster.yaml", "workspace.yaml") if not (RESOURCE_DIR / name).is_file()]
    if missing:
        yield Finding("Dagster files", "problem", f"{' and '.join(missing)} not found in {RESOURCE_DIR}")
    else:
        yield Finding("Dagster files", "ok", f"dagster.yaml and workspace.yaml in {RESOURCE_DIR}")
    home = os.environ.get("DAGSTER_HOME")
    if home and Path(home).resolve() != PROJECT_ROOT:
        yield Finding("Dagster files", "warning", f"DAGSTER_HOME is {home}: the dagster.yaml there is in force")


def _check_automation(found: Automation) -> Iterator[Finding]:
    if found.daemon_seen is None:
        told = "no daemon has run here: nothing starts by itself; `consolidation run --pending` does what waits"
        yield Finding("automation", "ok", told)
        return
    ago = datetime.now(UTC) - found.daemon_seen
    if ago > DAEMON_ALIVE:
        told = f"the daemon was last seen at {found.daemon_seen:%Y-%m-%d %H:%M} UTC: nothing starts by itself"
        yield Finding("automation", "warning", told)
        return
    yield listed("automation", found.off, what="are off", fine=f"{', '.join(found.on)} are on")


def _check_spans(settings: Settings) -> Iterator[Finding]:
    del settings
    wanted, wrong = find_exporters(), find_tracing_problem()
    fine = f"sent by {', '.join(wanted)}" if wanted else "none are sent: OTEL_EXPORTER_OTLP_ENDPOINT is not set"
    yield Finding("spans", "warning" if wrong else "ok", wrong or fine)


def _check_disk(settings: Settings) -> Iterator[Finding]:
    folder = next(parent for parent in (settings.data_dir, *settings.data_dir.resolve().parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    status: Status = "problem" if free < FULL_DISK_BYTES else "warning" if free < LOW_DISK_BYTES else "ok"
    yield Finding("disk", status, f"{free / 1e9:.1f} GB free for {settings.data_dir}")
