"""Inputs of associations: active raw and merged memories with their plain vectors of the run's model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consolidation_pipeline.core.lifecycle.associations import sample_weekly
from consolidation_pipeline.core.vectors import find_unusable
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.schema import MEMORY_TABLES
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_uuids
from consolidation_pipeline.store.knowledge.relations import (
    AssociationInputs,
    load_association_inputs,
    load_association_vectors,
)
from consolidation_pipeline.store.memories.embeddings import load_unembedded

logger = logging.getLogger(__name__)

# The sample is drawn from this number of the newest memories.
POOL_SIZE = 100


@dataclass(frozen=True)
class AssociationSample:
    """Units with their vectors float32 (n, d), both sorted by id, and the units without a vector."""

    units: AssociationInputs
    vectors: Vectors
    missing: AssociationInputs


def load_sample(run: ProjectRun) -> AssociationSample:
    """Return ``sample_size`` of the newest units, drawn anew each week. Raise EmbeddingError as ``load_all`` does."""
    model = run.embedder.name
    with run.reading() as connection:
        pool = load_association_inputs(connection, run.project.id, model, scope=run.options.scope, newest=POOL_SIZE)
        drawn = pool.select(sample_weekly(len(pool), run.options.sample_size, name=run.project.slug, now=run.now))
        dimension = int(drawn.dimension.max(initial=0))
        found = load_association_vectors(connection, run.project.id, model, dimension, ids=drawn.ids)
    return _split_by_vector(drawn, *found)


def load_all(run: ProjectRun) -> AssociationSample:
    """Return all units. Raise EmbeddingError if their stored vectors differ in length."""
    model = run.embedder.name
    with run.reading() as connection:
        units = load_association_inputs(connection, run.project.id, model, scope=run.options.scope)
        dimension = int(units.dimension.max(initial=0))
        found = load_association_vectors(connection, run.project.id, model, dimension)
    return _split_by_vector(units, *found)


def _split_by_vector(units: AssociationInputs, ids: Ids, vectors: Vectors) -> AssociationSample:
    """Match units and vectors. Agents write between the two queries: vectors without a unit are dropped."""
    has_vector = np.isin(units.ids, ids)
    return AssociationSample(units.select(has_vector), vectors[np.isin(ids, units.ids)], units.select(~has_vector))


def embed_missing(run: ProjectRun, sample: AssociationSample) -> AssociationSample:
    """Embed the units of a sample that have no vector; the vectors are not stored.

    A unit without a usable vector of the sample's length stays missing, with a warning in the log.

    Raises:
        EmbeddingError: The model cannot be loaded or reached.
    """
    if not len(sample.missing):
        return sample
    with run.reading() as connection:
        waiting = [load_unembedded(connection, table, sample.missing.ids, run.embedder.name) for table in MEMORY_TABLES]
    ids = np.concatenate([found.ids for found in waiting])
    embedded = _embed_texts(run, ids, [text for found in waiting for text in found.texts])
    length = sample.vectors.shape[1] or max((len(vector) for vector in embedded.values()), default=0)
    usable = [at for at, vector in embedded.items() if len(vector) == length and not find_unusable([vector]).size]
    for at in sorted(embedded.keys() - set(usable)):
        logger.warning("memory %s is not associated: its vector is zero or of another length", to_uuids(ids[[at]])[0])
    vectors = np.array([embedded[at] for at in usable], np.float32).reshape(len(usable), length)
    return _add_vectors(sample, ids[usable], vectors)


def _add_vectors(sample: AssociationSample, ids: Ids, vectors: Vectors) -> AssociationSample:
    all_ids = np.concatenate([sample.units.ids, ids])
    all_vectors = np.concatenate([sample.vectors.reshape(len(sample.vectors), vectors.shape[1]), vectors])
    units = sample.units.union(sample.missing)
    has_vector = np.isin(units.ids, all_ids)
    return AssociationSample(units.select(has_vector), all_vectors[np.argsort(all_ids)], units.select(~has_vector))


def _embed_texts(run: ProjectRun, ids: Ids, texts: Sequence[str]) -> dict[int, Vectors]:
    """Return vectors (d,) by position. If the batch fails, embed each text alone and leave out those that fail."""
    if not texts:
        return {}
    try:
        return dict(enumerate(run.embedder.embed(texts)))
    except (EmbeddingError, ImportError, OSError) as error:
        logger.warning("%s did not embed %d memories at once: %s", run.embedder.name, len(texts), error)
    try:
        run.embedder.embed(["memory"])
    except (EmbeddingError, ImportError, OSError) as error:
        # Every working model embeds a plain word, so no memory is at fault.
        raise EmbeddingError(f"embedding model {run.embedder.name} cannot be loaded or reached: {error}") from error
    embedded = {}
    for at, text in enumerate(texts):
        try:
            embedded[at] = run.embedder.embed([text])[0]
        except EmbeddingError as error:
            logger.warning("memory %s is not associated: %s", to_uuids(ids[[at]])[0], error)
    return embedded
