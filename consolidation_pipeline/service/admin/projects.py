"""Projects as people manage them: list, create, configure, delete."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from consolidation_pipeline.core.calibration.model_thresholds import resolve_thresholds
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.errors import InvalidOptionError, UsageError
from consolidation_pipeline.options import OPTION_NAMES, ConsolidationOptions, parse_options
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store import projects as store
from consolidation_pipeline.store.admin.project_counts import Backlog, ProjectCounts, count_project, list_backlogs
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.search.vector_indexes import drop_indexes


def list_projects(engine: Engine) -> list[Backlog]:
    """All projects by slug, with their active and new memories."""
    with engine.connect() as connection:
        return list_backlogs(connection)


def create_project(engine: Engine, slug: str, config: Mapping[str, Any], *, settings: Settings) -> Project:
    """A new project with the options of ``config``.

    Raises:
        UsageError: slug or an option is not allowed. ConflictError: the slug is taken.
    """
    chosen = _canonical(config)
    _check(parse_options(chosen), settings)
    with engine.begin() as connection:
        return store.create_project(connection, slug, chosen)


def configure_project(
    engine: Engine,
    slug: str,
    *,
    settings: Settings,
    config: Mapping[str, Any],
    resets: Collection[str] = (),
    enabled: bool | None = None,
) -> Project:
    """Set the options of ``config``, take those in ``resets`` back to their defaults, keep the others.

    Raises:
        NotFoundError; InvalidOptionError: a key is unknown or a value out of range. Nothing is changed then.
    """
    given, dropped = _canonical(config), set(_canonical(dict.fromkeys(resets)))
    if both := sorted(dropped & set(given)):
        raise InvalidOptionError(f"{', '.join(both)} is both set and reset: do one of them")
    with engine.begin() as connection:
        project = store.get_project(connection, slug)
        kept = {name: value for name, value in _canonical(project.config).items() if name not in dropped}
        chosen = kept | given
        _check(parse_options(chosen), settings)
        on = project.consolidation_enabled if enabled is None else enabled
        return store.configure_project(connection, slug, config=chosen, consolidation_enabled=on)


def get_configuration(engine: Engine, slug: str, *, settings: Settings) -> tuple[Project, ConsolidationOptions]:
    """The project and the options in force for it. Raises NotFoundError."""
    with engine.connect() as connection:
        project = store.get_project(connection, slug)
    return project, effective_options(project, settings)


def delete_project(engine: Engine, slug: str, *, confirmed: bool) -> tuple[Project, ProjectCounts]:
    """Delete a project with everything in it but the ledger; returns what it held.

    Raises:
        UsageError: not ``confirmed``; the message says what would go. ProjectBusyError: a run holds it.
    """
    with engine.connect() as connection:
        project = store.get_project(connection, slug)
    with project_lock(engine, project.id, slug, wait_seconds=0), engine.begin() as connection:
        counts = count_project(connection, project.id)
        if not confirmed:
            raise UsageError(
                f"this would delete project {slug} for good: {counts.memories} raw memories, {counts.merged} merged "
                "memories, its jobs and its configuration (the ledger stays); say --yes to do it"
            )
        store.delete_project(connection, project)
    drop_indexes(engine, project.id)
    return project, counts


def _canonical(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same options under their own names. Raises InvalidOptionError: a name is unknown or an option given twice."""
    named: dict[str, Any] = {}
    for key, value in config.items():
        if key not in OPTION_NAMES:
            options = ", ".join(ConsolidationOptions.model_fields)
            raise InvalidOptionError(f"{key} is not an option; the options are {options}")
        if OPTION_NAMES[key] in named:
            raise InvalidOptionError(f"{OPTION_NAMES[key]} is given twice, once as {key}: give it once")
        named[OPTION_NAMES[key]] = value
    return named


def _check(options: ConsolidationOptions, settings: Settings) -> None:
    """Raises InvalidOptionError where the thresholds do not fit the embedding model's."""
    model = options.embedding_model if "embedding_model" in options.model_fields_set else settings.embedding_model
    resolve_thresholds(load_embedder(model or "local").name, options.model_dump())
