"""Vectors for new rows of a store, by the model that made the vectors which are there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

import numpy as np

from consolidation_pipeline.connect.store import MemoryStore, StoreConfig
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.vector_copy import Vectors, format_vector
from consolidation_pipeline.store.projects import Project

# Rows that are embedded again to see if the model is the right one, and how equal their vectors have to be.
SAMPLE_ROWS = 20
MIN_COSINE = 0.999


def shares_model(config: StoreConfig, project: Project) -> bool:
    """Return True if the vectors of a store are said to be of the project's embedding model."""
    if config.embedding_model is None:
        return False
    own = load_embedder(parse_options(project.config).embedding_model)
    return load_embedder(config.embedding_model).name == own.name


def parse_vectors(texts: Sequence[str]) -> Vectors:
    """Return vectors that Postgres wrote as text, float32 (n, d). They have to be of one length."""
    return np.array([np.fromstring(text[1:-1], np.float32, sep=",") for text in texts], np.float32)


class StoreEmbedder:
    """The embedding model of a store, examined when it is needed first."""

    def __init__(self, engine: Engine, project: Project, config: StoreConfig, store: MemoryStore) -> None:
        self._engine, self._project, self._config, self._store = engine, project, config, store

    def embed(self, text: str) -> str:
        """Return the vector of a text as Postgres writes it.

        Raises:
            UsageError: The model is not named, is not the project's, or did not make the vectors of the store.
        """
        return format_vector(self._model.embed([text])[0])

    @cached_property
    def _model(self) -> Any:
        if not shares_model(self._config, self._project):
            raise UsageError(
                "a new row needs a vector: connect the store with --embedding-model, the model of its vectors, which "
                "has to be the project's embedding_model"
            )
        options = parse_options(self._project.config)
        model = open_embedder(self._engine, self._project, options, uuid4())
        rows = self._store.sample_rows(SAMPLE_ROWS)
        theirs = normalize(parse_vectors([row.vector or "" for row in rows]))
        ours = model.embed([row.text for row in rows])
        if theirs.shape != ours.shape:
            raise UsageError(
                f"{model.name} makes vectors of {ours.shape[1]} dimensions, those of the store have {theirs.shape[1]}"
            )
        cosine = float((theirs * ours).sum(axis=1).min())
        if cosine < MIN_COSINE:
            raise UsageError(
                f"{model.name} did not make the vectors of the store: of {len(rows)} rows that were embedded again the "
                f"farthest has a cosine of {cosine:.3f}, and {MIN_COSINE} is needed"
            )
        return model
