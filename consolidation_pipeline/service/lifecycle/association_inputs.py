"""What associations compare: active raw and merged memories, each with its plain vector of the run's model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consolidation_pipeline.core.lifecycle.associations import draw_weekly
from consolidation_pipeline.core.vectors import find_unusable
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_uuids
from consolidation_pipeline.store.knowledge.relations import (
    AssociationInputs,
    load_association_inputs,
    load_association_vectors,
)
from consolidation_pipeline.store.memories.embeddings import load_unembedded

logger = logging.getLogger(__name__)

# The newest memories, of which a sample is drawn (pipeline.md, associations).
POOL = 100

_TABLES = ("task_memories", "consolidated_memories")
# Any model that works has a vector for it.
_PROBE = "memory"


@dataclass(frozen=True)
class Compared:
    """Units ``ends`` and their vectors ``x`` float32 (n, d), both sorted by id; ``missing`` are units without one."""

    ends: AssociationInputs
    x: Vectors
    missing: AssociationInputs


def load_sample(run: ProjectRun) -> Compared:
    """``sample_size`` of the newest units, those that are drawn in the week of the run.

    Raises:
        EmbeddingError: their stored vectors differ in length.
    """
    model = run.embedder.name
    with run.engine.connect() as connection:
        pool = load_association_inputs(connection, run.project.id, model, newest=POOL)
        drawn = pool.select(draw_weekly(len(pool), run.options.sample_size, name=run.project.slug, now=run.now))
        dimension = int(drawn.dimension.max(initial=0))
        found = load_association_vectors(connection, run.project.id, model, dimension, ids=drawn.ids)
    return _divided(drawn, *found)


def load_all(run: ProjectRun) -> Compared:
    """Every unit. Raises EmbeddingError: the stored vectors differ in length."""
    model = run.embedder.name
    with run.engine.connect() as connection:
        ends = load_association_inputs(connection, run.project.id, model)
        dimension = int(ends.dimension.max(initial=0))
        found = load_association_vectors(connection, run.project.id, model, dimension)
    return _divided(ends, *found)


def _divided(ends: AssociationInputs, ids: Ids, x: Vectors) -> Compared:
    """Agents write between the two queries: what only one of them saw is not compared."""
    has = np.isin(ends.ids, ids)
    return Compared(ends.select(has), x[np.isin(ids, ends.ids)], ends.select(~has))


def embed_missing(run: ProjectRun, sample: Compared) -> Compared:
    """The sample with vectors for its missing units as well, made for the purpose and stored nowhere.

    Units for which the model has no vector of the right length stay missing, each with a warning in the log.

    Raises:
        EmbeddingError: the model cannot be loaded or reached at all.
    """
    if not len(sample.missing):
        return sample
    with run.engine.connect() as connection:
        waiting = [load_unembedded(connection, table, sample.missing.ids, run.embedder.name) for table in _TABLES]
    ids = np.concatenate([found.ids for found in waiting])
    made = _embed_texts(run, ids, [text for found in waiting for text in found.texts])
    length = sample.x.shape[1] or max((len(vector) for vector in made.values()), default=0)
    usable = [at for at, vector in made.items() if len(vector) == length and not find_unusable([vector]).size]
    for at in sorted(made.keys() - set(usable)):
        logger.warning("memory %s is not associated: its vector is zero or of another length", to_uuids(ids[[at]])[0])
    vectors = np.array([made[at] for at in usable], np.float32).reshape(len(usable), length)
    return _joined(sample, ids[usable], vectors)


def _joined(sample: Compared, ids: Ids, vectors: Vectors) -> Compared:
    every = np.concatenate([sample.ends.ids, ids])
    x = np.concatenate([sample.x.reshape(len(sample.x), vectors.shape[1]), vectors])
    ends = sample.ends.union(sample.missing)
    has = np.isin(ends.ids, every)
    return Compared(ends.select(has), x[np.argsort(every)], ends.select(~has))


def _embed_texts(run: ProjectRun, ids: Ids, texts: Sequence[str]) -> dict[int, Vectors]:
    """Vector (d,) by position, all at once; where that fails each alone, without those that fail again."""
    if not texts:
        return {}
    try:
        return dict(enumerate(run.embedder.embed(texts)))
    except (EmbeddingError, ImportError, OSError) as error:
        logger.warning("%s did not embed %d memories at once: %s", run.embedder.name, len(texts), error)
    _probe(run)
    made = {}
    for at, text in enumerate(texts):
        try:
            made[at] = run.embedder.embed([text])[0]
        except EmbeddingError as error:
            logger.warning("memory %s is not associated: %s", to_uuids(ids[[at]])[0], error)
    return made


def _probe(run: ProjectRun) -> None:
    """Ask for the vector of a plain word: without an answer, it is not the memories that are wrong."""
    try:
        run.embedder.embed([_PROBE])
    except (EmbeddingError, ImportError, OSError) as error:
        model = run.embedder.name
        raise EmbeddingError(f"embedding model {model} cannot be loaded or reached: {error}") from error
