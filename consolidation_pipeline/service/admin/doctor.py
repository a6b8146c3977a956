"""Diagnosis of an installation: database, models, jobs, webhook, Dagster and its automation, spans, disk.

Each check yields findings. A check that cannot be made is a finding itself. The checks here are those of this process
and its machine; ``database_checks`` has the others.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from consolidation_pipeline.core.jit import COMPILING
from consolidation_pipeline.core.similarity.join_planner import KERNEL, find_kernel_problem, find_platform_problem
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.errors import ConsolidationError
from consolidation_pipeline.service.admin.database_checks import check_database
from consolidation_pipeline.service.admin.findings import Finding, Status, list_finding
from consolidation_pipeline.service.admin.model_check import check_models
from consolidation_pipeline.settings import PROJECT_ROOT, RESOURCE_DIR, Settings, use_dagster_home
from consolidation_pipeline.store.database.engine import DAGSTER_SCHEMA, dagster_url
from consolidation_pipeline.store.database.inspection import find_daemon_heartbeat, hide_password
from consolidation_pipeline.tracing import find_exporters, find_tracing_problem

# The embedded server stops writing when the disk is full. A run of 100,000 memories needs about 1 GB.
LOW_DISK_BYTES = 1_000_000_000
FULL_DISK_BYTES = 100_000_000
# A daemon sends a heartbeat every half minute.
DAEMON_ALIVE = timedelta(minutes=5)
# Class of the storage that the project's dagster.yaml names.
_OWN_STORAGE = "ConsolidationPostgresStorage"


@dataclass(frozen=True)
class Automation:
    """Names of the sensors and schedules that are on and off. ``daemon_seen``: last heartbeat of Dagster's daemon."""

    on: Sequence[str]
    off: Sequence[str]
    daemon_seen: datetime | None


def diagnose(settings: Settings, find_automation: Callable[[], Automation], *, ask_models: bool) -> Iterator[Finding]:
    """Run all checks and yield their findings.

    Args:
        settings: Settings of this process.
        find_automation: Asks Dagster, which only ``defs`` knows.
        ask_models: Send a small request to each paid model, which is billed.
    """
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "database": lambda: check_database(settings),
        "embedding model": lambda: _check_model(settings),
        "language model": lambda: check_models(settings, ask=ask_models),
        "similarity join": _check_join,
        "Dagster storage": lambda: _check_dagster_storage(settings),
        "Dagster files": _check_dagster_files,
        "automation": lambda: _check_automation(_find_automation(settings, find_automation)),
        "spans": _check_spans,
        "disk": lambda: _check_disk(settings),
    }
    beside = ["automation"] if settings.dagster_postgres_url is None else []
    unchecked: Sequence[str] = ()
    for name, check in checks.items():
        if name in unchecked:
            yield Finding(name, "warning", "not checked, as the database cannot be used")
            continue
        try:
            yield from check()
        except ConsolidationError as error:
            yield Finding(name, "problem", " ".join(str(error).split()))
            if name == "database":
                unchecked = ["language model", *beside]


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


def _find_automation(settings: Settings, ask_dagster: Callable[[], Automation]) -> Automation:
    """Return which sensors and schedules are on.

    Dagster, which takes seconds to import, is asked only if its daemon is alive, or if its storage is not ours.
    """
    config = use_dagster_home() / "dagster.yaml"
    if config.is_file() and _OWN_STORAGE in config.read_text("utf-8"):
        seen = find_daemon_heartbeat(dagster_url(settings))
        if seen is None or datetime.now(UTC) - seen > DAEMON_ALIVE:
            return Automation([], [], seen)
    return ask_dagster()


def _check_automation(found: Automation) -> Iterator[Finding]:
    if found.daemon_seen is None:
        message = "no daemon has run here: nothing starts by itself; `consolidation run --pending` runs what waits"
        yield Finding("automation", "ok", message)
        return
    if datetime.now(UTC) - found.daemon_seen > DAEMON_ALIVE:
        message = f"the daemon was last seen at {found.daemon_seen:%Y-%m-%d %H:%M} UTC: nothing starts by itself"
        yield Finding("automation", "warning", message)
        return
    yield list_finding("automation", found.off, what="are off", fine=f"{', '.join(found.on)} are on")


def _check_spans() -> Iterator[Finding]:
    exporters, problem = find_exporters(), find_tracing_problem()
    fine = f"sent by {', '.join(exporters)}" if exporters else "none are sent: OTEL_EXPORTER_OTLP_ENDPOINT is not set"
    yield Finding("spans", "warning" if problem else "ok", problem or fine)


def _check_disk(settings: Settings) -> Iterator[Finding]:
    folder = next(parent for parent in (settings.data_dir, *settings.data_dir.resolve().parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    status: Status = "problem" if free < FULL_DISK_BYTES else "warning" if free < LOW_DISK_BYTES else "ok"
    yield Finding("disk", status, f"{free / 1e9:.1f} GB free for {settings.data_dir}")
