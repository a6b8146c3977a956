"""Shadows of a project: run, continue, list, read and drop them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from consolidation_pipeline.errors import (
    ConflictError,
    NotFoundError,
    ProjectBusyError,
    SchemaOutOfDateError,
    UsageError,
)
from consolidation_pipeline.service.admin.project_stores import check_scope
from consolidation_pipeline.service.admin.projects import merge_config
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project, open_run
from consolidation_pipeline.service.shadow.comparison import (
    compare,
    compare_retrieval,
    compare_tests,
    describe_baseline,
    judge_labelled,
)
from consolidation_pipeline.service.shadow.phase_runner import run_phases
from consolidation_pipeline.service.shadow.report import ShadowReport, Spending
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_counts import count_raw_memories
from consolidation_pipeline.store.database.engine import Engine, check_schema
from consolidation_pipeline.store.jobs.llm_calls import sum_job_spending
from consolidation_pipeline.store.jobs.project_lock import session_lock
from consolidation_pipeline.store.projects import Project, configure_project, get_project
from consolidation_pipeline.store.shadow.databases import (
    create_shadow,
    drop_shadow,
    list_shadows,
    open_shadow,
    read_state,
    write_state,
)
from consolidation_pipeline.store.shadow.promotion import count_operations
from consolidation_pipeline.store.shadow.snapshot import copy_project

DEFAULT_NAME = "next"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,30}")


def run_shadow(
    engine: Engine,
    slug: str,
    options: Mapping[str, Any],
    *,
    name: str = DEFAULT_NAME,
    settings: Settings,
    triggered_by: str,
) -> ShadowReport:
    """Run a project with other options on a copy of it; return what differs. No live row is read again or written.

    A shadow that was interrupted goes on with its snapshot and what it has paid for.

    Args:
        options: Options that differ from the project's, by name or alias.
        name: Name of the shadow; a project may have several.

    Raises:
        UsageError: The name or an option is not allowed, or no option is given.
        NotFoundError: There is no such project.
        ConflictError: The project has a shadow of this name that is complete, or was begun with other options.
        ProjectBusyError: Another process runs this shadow.
        StoreError: The user may not create a database.
    """
    project = get_runnable_project(engine, slug)
    _check_name(name)
    config = merge_config(project, options, settings=settings)
    with engine.connect() as connection:
        check_scope(connection, project, config)
    given = {key: value for key, value in config.items() if project.config.get(key) != value}
    if not given:
        raise UsageError("a shadow needs options that differ from the project's, such as t_merge=0.9")
    with session_lock(engine, f"shadow:{project.id}:{name}", wait_seconds=0) as held:
        if not held:
            raise ProjectBusyError(f"another process runs the shadow {name} of {slug}; try again when it is done")
        shadow, state = _prepare(engine, project, name, given)
        if "baseline" not in state:
            with_own_options = describe_baseline(shadow, project, settings)
            with shadow.begin() as connection:
                configure_project(connection, slug, config=config, consolidation_enabled=True)
                write_state(connection, {"baseline": with_own_options})
        with open_run(shadow, slug, settings=settings, triggered_by=triggered_by) as run:
            run_phases(run)
        report = _make_report(shadow, project, name, run, settings)
        with shadow.begin() as connection:
            write_state(connection, {"report": report.model_dump(mode="json")})
        return report


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"shadow {name!r} is not allowed: use 1 to 31 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )


def _prepare(engine: Engine, project: Project, name: str, options: Mapping[str, Any]) -> tuple[Engine, dict[str, Any]]:
    """Return the database of a shadow that is to be run, with its snapshot, and its state."""
    database = list_shadows(engine, project.id).get(name)
    if database is not None:
        shadow, state = _open(engine, project, name, database)
        if "report" in state:
            raise ConflictError(
                f"{project.slug} has a shadow {name} already: read it with `consolidation shadow {project.slug}`, "
                "--promote or --drop it, or choose another --name"
            )
        if state and state.get("options", options) != options:
            raise ConflictError(
                f"the shadow {name} of {project.slug} was begun with other options, {state['options']}: go on with "
                "these, --drop it, or choose another --name"
            )
        if state:
            return shadow, state
    shadow = create_shadow(engine, project.id, name)
    copy_project(engine, shadow, project.id)
    with shadow.begin() as connection:
        write_state(connection, {"options": dict(options)})
        return shadow, read_state(connection)


def _make_report(shadow: Engine, project: Project, name: str, run: ProjectRun, settings: Settings) -> ShadowReport:
    with shadow.connect() as connection:
        state = read_state(connection)
        baseline = state["baseline"]
        retrieval = compare_retrieval(shadow, project, settings, baseline)
        refused = [one.tests for one in run.refused_by_tests]
        spent = sum_job_spending(connection, run.job_id)
        return ShadowReport(
            project=project.slug,
            name=name,
            options=state["options"],
            snapshot_at=state["snapshot_at"],
            job_id=run.job_id,
            memories=count_raw_memories(connection, project.id).memories,
            changes=count_operations(connection, seq=state["seq"]),
            difference=compare(connection, project, baseline),
            memory_tests=compare_tests(shadow, project, settings, baseline, refused),
            labelled_pairs=judge_labelled(connection, project, baseline),
            retrieval=retrieval,
            cost=Spending(
                usd=float(spent.usd),
                tokens=spent.tokens,
                calls=spent.calls,
                cached=spent.cached,
                usd_here=baseline["usd"],
            ),
            stopped=[f"{stop['purpose']}: {stop['reason']}" for stop in run.stopped],
        )


def list_reports(engine: Engine, slug: str) -> dict[str, ShadowReport | None]:
    """Return the reports of a project's shadows by name; None if its run is not complete."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
    found = list_shadows(engine, project.id)
    return {name: _parse_report(_open(engine, project, name, database)[1]) for name, database in found.items()}


def _open(engine: Engine, project: Project, name: str, database: str) -> tuple[Engine, dict[str, Any]]:
    """Return the database of a shadow and its state; empty if there is none yet.

    Raises:
        ConflictError: Another version of this program made the shadow.
    """
    shadow = open_shadow(engine, database)
    with shadow.connect() as connection:
        state = read_state(connection)
    if state:
        try:
            check_schema(shadow)
            _parse_report(state)
        except (SchemaOutOfDateError, ValidationError):
            raise ConflictError(
                f"the shadow {name} of {project.slug} was made by another version of this program: --drop it and run "
                "it again"
            ) from None
    return shadow, state


def _parse_report(state: Mapping[str, Any]) -> ShadowReport | None:
    report = state.get("report")
    return None if report is None else ShadowReport.model_validate(report)


def _find_database(engine: Engine, project: Project, name: str) -> str:
    """Return the name of a shadow's database; raise NotFoundError if there is no such shadow."""
    found = list_shadows(engine, project.id)
    if name not in found:
        known = ", ".join(found) or "none"
        raise NotFoundError(f"project {project.slug} has no shadow {name!r}; shadows: {known}")
    return found[name]


def read_report(engine: Engine, slug: str, name: str = DEFAULT_NAME) -> ShadowReport:
    """Return the report of a shadow; the errors are those of ``open_complete``."""
    return open_complete(engine, slug, name)[1]


def open_complete(engine: Engine, slug: str, name: str) -> tuple[Engine, ShadowReport, int]:
    """Return the database of a shadow, its report, and the last seq of the snapshot in the ledger.

    Raises:
        NotFoundError: There is no such project or shadow.
        ConflictError: Its run is not complete, or another version of this program made it.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
    shadow, state = _open(engine, project, name, _find_database(engine, project, name))
    report = _parse_report(state)
    if report is None:
        raise ConflictError(f"the shadow {name} of {slug} is not complete: run it again with the same options")
    return shadow, report, int(state["seq"])


def drop(engine: Engine, slug: str, name: str = DEFAULT_NAME) -> None:
    """Drop a shadow with all it holds, also while it is run. Raise NotFoundError if there is none."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
    drop_shadow(engine, _find_database(engine, project, name))
