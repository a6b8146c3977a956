"""Change of a project's embedding model while it is searched: stage the vectors, switch, switch back, drop them.

Vectors of the next model are staged beside those in the rows, and so are copies of the latter. From then on search
finds the memories by either model, so that a switch is one update of the project's options. The next run moves the
staged vectors of its model into the rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from consolidation_pipeline.core.calibration.model_thresholds import TIERS
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.errors import ConflictError, ProjectBusyError, UsageError
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.admin.projects import merge_config
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project, hold_project
from consolidation_pipeline.service.similarity.embedding import BATCH, check_vectors_of, embed_texts
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.project_lock import session_lock
from consolidation_pipeline.store.memories.embeddings import EMBEDDED_TABLES, count_embedded, load_unembedded
from consolidation_pipeline.store.memories.staged_embeddings import (
    analyze_staged,
    count_unstaged,
    delete_staged,
    list_staged_models,
    list_unstaged,
    save_staged,
    stage_own_vectors,
    stage_reusable_vectors,
)
from consolidation_pipeline.store.projects import Project, configure_project, get_project
from consolidation_pipeline.store.search.index_upkeep import build_staged_indexes, drop_staged_indexes
from consolidation_pipeline.store.search.retrievers import load_vector_length


@dataclass(frozen=True)
class ModelVectors:
    """Vectors of a model: of how many rows, of their own or staged, and how many rows have neither."""

    model: str
    dimension: int
    own: int
    staged: int
    missing: int


@dataclass(frozen=True)
class EmbeddingStatus:
    """Models that a project has vectors of. ``current``: the one that searches and runs use."""

    project: str
    current: str
    models: list[ModelVectors]


@dataclass(frozen=True)
class Staging:
    """Result of a staging: new vectors that were computed, or reused from equal texts."""

    status: EmbeddingStatus
    computed: int
    reused: int


@dataclass(frozen=True)
class Switch:
    """Result of a switch. ``computed``: vectors of memories since the staging. ``seconds``: the update alone."""

    project: str
    before: str
    after: str
    computed: int
    seconds: float


def read_status(engine: Engine, slug: str, *, settings: Settings) -> EmbeddingStatus:
    """Return which models a project has vectors of. Raise NotFoundError if there is no such project."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
        current = _name_model(project, settings)
        staged = list_staged_models(connection, project.id)
        models = []
        for model in dict.fromkeys([current, *staged]):
            dimension, vectors = staged.get(model, (load_vector_length(connection, project.id, model), 0))
            own = sum(embedded for embedded, _ in count_embedded(connection, project.id, model).values())
            models.append(ModelVectors(model, dimension, own, vectors, count_unstaged(connection, project.id, model)))
    return EmbeddingStatus(slug, current, models)


def stage_embeddings(engine: Engine, slug: str, model: str, *, settings: Settings) -> Staging:
    """Stage vectors of another model, and copies of those in the rows. Searches, runs and agents go on meanwhile.

    Each batch is stored at once, so that a staging that was interrupted, or had no budget left, goes on where it ended.

    Args:
        model: ``local`` or an embedding model of litellm, as the option ``embedding_model``.

    Raises:
        NotFoundError: There is no such project.
        InvalidOptionError: The model is not allowed.
        UsageError: It is the project's model.
        ConflictError: Vectors of a third model are staged.
        ProjectBusyError: Another process stages vectors of the project.
        EmbeddingError: The model gave no usable vector.
        BudgetExhaustedError: The budget of the project is used up.
    """
    project = get_runnable_project(engine, slug)
    options = _choose_model(project, model, settings)
    embedder = open_embedder(engine, project, options, uuid4())
    current = _name_model(project, settings)
    if embedder.name == current:
        raise UsageError(f"{slug} has the embedding model {current} already: give another")
    with _hold_staging(engine, project):
        with engine.connect() as connection:
            others = sorted(set(list_staged_models(connection, project.id)) - {current, embedder.name})
        if others:
            raise ConflictError(
                f"{slug} has staged vectors of {others[0]}: `consolidation embeddings {slug} --drop` removes them"
            )
        computed, reused = _fill(engine, project, embedder)
        _copy_own(engine, project, current)
        with engine.begin() as connection:
            analyze_staged(connection)
        for name in (embedder.name, current):
            with engine.connect() as connection:
                dimension = load_vector_length(connection, project.id, name)
            build_staged_indexes(engine, project.id, name, dimension)
    return Staging(read_status(engine, slug, settings=settings), computed, reused)


def switch_model(engine: Engine, slug: str, *, settings: Settings) -> Switch:
    """Make the other staged model the project's, so that the next search uses it; again, to switch back.

    Memories that came since the staging are embedded before. The next run derives the thresholds of the model anew.

    Raises:
        NotFoundError: There is no such project.
        UsageError: No other model is staged, or the project has thresholds that were set for its model.
        ProjectBusyError: A run, a rollback or a staging holds the project.
        EmbeddingError: The model gave no usable vector.
        BudgetExhaustedError: The budget of the project is used up.
    """
    project = get_runnable_project(engine, slug)
    _reject_thresholds(project)
    with _hold_staging(engine, project):
        with engine.connect() as connection:
            project = get_project(connection, slug)
            current = _name_model(project, settings)
            others = sorted(set(list_staged_models(connection, project.id)) - {current})
        if not others:
            raise UsageError(f"no other model of {slug} is staged: run `consolidation embeddings {slug} --model MODEL`")
        options = _choose_model(project, others[0], settings)
        embedder = open_embedder(engine, project, options, uuid4())
        computed = _fill(engine, project, embedder)[0]
        _copy_own(engine, project, current)
        with hold_project(engine, project):
            computed += _fill(engine, project, embedder)[0]
            began = time.perf_counter()
            with engine.begin() as connection:
                project = get_project(connection, slug)
                config = merge_config(project, {"embedding_model": others[0]}, settings=settings)
                configure_project(connection, slug, config=config, consolidation_enabled=project.consolidation_enabled)
            spent = time.perf_counter() - began
    return Switch(slug, current, embedder.name, computed, round(spent, 4))


def drop_staged(engine: Engine, slug: str, *, settings: Settings) -> int:
    """Delete the staged vectors of a project; return their number. After that there is no switch back.

    Raises:
        NotFoundError: There is no such project.
        ConflictError: Rows have a vector of the project's model only as a staged one.
        ProjectBusyError: Another process stages vectors of the project.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
    with _hold_staging(engine, project):
        with engine.begin() as connection:
            project = get_project(connection, slug)
            current = _name_model(project, settings)
            missing = sum(rows for _, rows in count_embedded(connection, project.id, current).values())
            if missing > count_unstaged(connection, project.id, current):
                raise ConflictError(
                    f"{missing} rows of {slug} have their vector of {current} as a staged one only: "
                    f"`consolidation run {slug} --job reembed` moves it, or switch back before"
                )
            deleted = delete_staged(connection, project.id)
        drop_staged_indexes(engine, project.id)
    return deleted


@contextmanager
def _hold_staging(engine: Engine, project: Project) -> Iterator[None]:
    with session_lock(engine, f"embeddings:{project.id}", wait_seconds=0) as held:
        if not held:
            raise ProjectBusyError(f"another process stages vectors of {project.slug}; try again when it is done")
        yield


def _name_model(project: Project, settings: Settings) -> str:
    """Return the name of the embedding model that a project has."""
    return load_embedder(effective_options(project, settings).embedding_model).name


def _choose_model(project: Project, model: str, settings: Settings) -> ConsolidationOptions:
    """Return the options that a project would have with another embedding model."""
    thresholds = [name for name in TIERS if name in project.config]
    config = merge_config(project, {"embedding_model": model}, resets=thresholds, settings=settings)
    return effective_options(replace(project, config=config), settings)


def _reject_thresholds(project: Project) -> None:
    """Raise UsageError if the project has thresholds of its own: they hold for the model that they were set for."""
    given = {name: project.config[name] for name in TIERS if project.config.get(name, "auto") != "auto"}
    if given:
        shown = " ".join(f"{name}=" for name in given)
        raise UsageError(
            f"{', '.join(f'{name}={value}' for name, value in given.items())} was set for the model in use: "
            f"`consolidation projects configure {project.slug} {shown}` lets the next run derive it for the other one"
        )


def _fill(engine: Engine, project: Project, embedder: Embedder) -> tuple[int, int]:
    """Stage the vectors that rows lack; return the numbers of computed and of reused ones."""
    computed = reused = 0
    for table in EMBEDDED_TABLES:
        with engine.begin() as connection:
            reused += stage_reusable_vectors(connection, project.id, table, embedder.name)
        # Agents write meanwhile. Rows that came during one pass are embedded by the next.
        while done := _fill_table(engine, project, table, embedder):
            computed += done
    return computed, reused


def _fill_table(engine: Engine, project: Project, table: str, embedder: Embedder) -> int:
    with engine.connect() as connection:
        ids = list_unstaged(connection, project.id, table, embedder.name)
        dimension = load_vector_length(connection, project.id, embedder.name) if len(ids) else 0
    done = 0
    for start in range(0, len(ids), BATCH):
        with engine.connect() as connection:
            batch = load_unembedded(connection, table, ids[start : start + BATCH], embedder.name)
        for part, vectors in embed_texts(batch, embedder) if batch.texts else ():
            check_vectors_of(part, vectors, embedder.name, dimension)
            dimension = vectors.shape[1]
            with engine.begin() as connection:
                save_staged(connection, project.id, table, part.ids, part.hashes, vectors, embedder.name)
            done += len(part.texts)
    return done


def _copy_own(engine: Engine, project: Project, model: str) -> None:
    """Stage copies of the vectors of ``model`` in the rows, which the next run of another model replaces."""
    for table in EMBEDDED_TABLES:
        with engine.begin() as connection:
            stage_own_vectors(connection, project.id, table, model)
