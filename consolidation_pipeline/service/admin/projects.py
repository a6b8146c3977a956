"""Management of projects: list, find, create, configure, delete."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.calibration.model_thresholds import resolve_thresholds
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.errors import ConflictError, InvalidOptionError, UsageError
from consolidation_pipeline.options import OPTION_NAMES, ConsolidationOptions, check_judge, parse_options
from consolidation_pipeline.service.admin.model_check import MODEL_OPTIONS, check_provider
from consolidation_pipeline.service.admin.project_stores import ProjectStore, check_scope, describe_stores, list_stores
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.operator_limits import check_limits, read_limits
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store import projects as store
from consolidation_pipeline.store.admin.project_counts import Backlog, ProjectCounts, count_project, list_backlogs
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.search.index_upkeep import drop_indexes
from consolidation_pipeline.store.shadow.databases import drop_shadows


def list_projects(engine: Engine) -> list[Backlog]:
    """Return all projects by slug, with their active and new memories."""
    with engine.connect() as connection:
        return list_backlogs(connection)


def find_project(engine: Engine, reference: str) -> Project:
    """Return the project with this slug or, if none has it, with this id. Raise NotFoundError if there is none."""
    with autocommit_connection(engine) as connection:
        return store.find_project(connection, reference)


def find_owners(engine: Engine, ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
    """Return id -> project id of memories, playbook entries, suggestions, jobs, changes and groups that exist."""
    with autocommit_connection(engine) as connection:
        return store.load_project_ids(connection, ids)


def create_project(engine: Engine, slug: str, config: Mapping[str, Any], *, settings: Settings) -> Project:
    """Create a project with the options of ``config``.

    Raises:
        UsageError: The slug or an option is not allowed.
        ConflictError: The slug is taken.
    """
    chosen = _rename_aliases(config)
    _check_options(parse_options(chosen), settings)
    _check_providers(chosen)
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
    """Set the options of ``config``, reset those in ``resets`` to their defaults, keep the others.

    Args:
        config: Values of the options to set, by name or alias.
        resets: Names of the options to reset.
        enabled: Switch consolidation on or off; None = leave it.

    Raises:
        NotFoundError: There is no such project.
        InvalidOptionError: An option is unknown, out of range or beyond the operator's limits, or ``scope`` would mix
            memories that a connected store keeps apart. Nothing is changed.
    """
    with engine.begin() as connection:
        project = store.get_project(connection, slug)
        chosen = merge_config(project, config, resets=resets, settings=settings)
        check_scope(connection, project, chosen)
        on = project.consolidation_enabled if enabled is None else enabled
        return store.configure_project(connection, slug, config=chosen, consolidation_enabled=on)


def merge_config(
    project: Project, config: Mapping[str, Any], *, resets: Collection[str] = (), settings: Settings
) -> dict[str, Any]:
    """Return the options of a project after those of ``config`` are set and those in ``resets`` are reset.

    Raises:
        InvalidOptionError: An option is unknown, out of range or beyond the operator's limits.
    """
    given, dropped = _rename_aliases(config), set(_rename_aliases(dict.fromkeys(resets)))
    if both := sorted(dropped & set(given)):
        raise InvalidOptionError(f"{', '.join(both)} is both set and reset: set it or reset it")
    kept = {name: value for name, value in _rename_aliases(project.config).items() if name not in dropped}
    chosen = kept | given
    _check_options(parse_options(chosen), settings)
    _check_providers(given)
    return chosen


def get_configuration(engine: Engine, slug: str, *, settings: Settings) -> tuple[Project, ConsolidationOptions]:
    """Return a project and its effective options. Raise NotFoundError if there is none."""
    with engine.connect() as connection:
        project = store.get_project(connection, slug)
    return project, effective_options(project, settings)


def delete_project(
    engine: Engine, slug: str, *, confirmed: bool, keep: bool = False
) -> tuple[Project, ProjectCounts, list[ProjectStore]]:
    """Delete a project with everything in it but the ledger; return it, its counts before and its stores.

    Args:
        keep: Leave rows hidden in connected stores.

    Raises:
        NotFoundError: There is no such project.
        UsageError: ``confirmed`` is False; the message says what would be deleted.
        ConflictError: Rows are hidden in a connected store, and ``keep`` is False.
        ProjectBusyError: A run holds the project.
    """
    with engine.connect() as connection:
        project = store.get_project(connection, slug)
    with project_lock(engine, project.id, slug, wait_seconds=0), engine.begin() as connection:
        counts = count_project(connection, project.id)
        stores = list_stores(connection, project.id)
        if not confirmed:
            connected = f"; connected: {describe_stores(stores)}" if stores else ""
            raise UsageError(
                f"this would delete project {slug} for good: {counts.memories} raw memories, {counts.merged} merged "
                f"memories, its jobs and its configuration (the ledger stays){connected}; confirm with --yes"
            )
        written = [each for each in stores if each.is_written]
        if written and not keep:
            raise ConflictError(
                f"project {slug} is connected with {describe_stores(written)}; --keep leaves them hidden",
                tuple(each.name for each in written),
            )
        store.delete_project(connection, project)
    drop_indexes(engine, project.id)
    drop_shadows(engine, project.id)
    return project, counts, stores


def _rename_aliases(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options under their own names. Raise InvalidOptionError for unknown and repeated ones."""
    named: dict[str, Any] = {}
    for key, value in config.items():
        if key not in OPTION_NAMES:
            options = ", ".join(ConsolidationOptions.model_fields)
            raise InvalidOptionError(f"{key} is not an option; the options are {options}")
        if OPTION_NAMES[key] in named:
            raise InvalidOptionError(f"{OPTION_NAMES[key]} is given twice, once as {key}: give it once")
        named[OPTION_NAMES[key]] = value
    return named


def _check_providers(chosen: Mapping[str, Any]) -> None:
    """Raise InvalidOptionError for a model to which no request could be sent."""
    for name in MODEL_OPTIONS:
        if isinstance(chosen.get(name), str):
            check_provider(name, chosen[name])


def _check_options(options: ConsolidationOptions, settings: Settings) -> None:
    """Raise InvalidOptionError for what does not fit the models, or is beyond the operator's limits."""
    check_limits(options, read_limits(settings))
    for judge in ("pair_judge", "supersession_judge"):
        check_judge(judge, options, default_model=settings.llm_model)
    model = options.embedding_model if "embedding_model" in options.model_fields_set else settings.embedding_model
    resolve_thresholds(load_embedder(model or "local").name, options.model_dump())
