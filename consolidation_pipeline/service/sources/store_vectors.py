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


def name_model(config: StoreConfig) -> str:
    """Return the model of the vectors of a store, for messages."""
    return config.embedding_model or "a model that --embedding-model does not name"


def parse_vectors(texts: Sequence[str]) -> Vectors:
    """Return vectors that Postgres wrote as text, float32 (n, d). They have to be of one length."""
    return np.array([np.fromstring(text[1:-1], np.float32, sep=",") for text in texts], np.float32)


def count_dimensions(text: str) -> int:
    """Return the length of a vector that Postgres wrote as text."""
    return text.count(",") + 1


class StoreEmbedder:
    """The embedding model of a store, examined when it is needed first."""

    def __init__(self, engine: Engine, project: Project, config: StoreConfig, store: MemoryStore) -> None:
        self._engine, self._project, self._config, self._store = engine, project, config, store

    def embed(self, text: str) -> str:
        """Return the vector of a text as Postgres writes it.

        Raises:
            UsageError: The model is not named, is not the project's, or did not make the vectors of the store.
        """
        try:
            model = self._examined[0]
        except UsageError as error:
            raise UsageError(f"a new row needs a vector, and {error}") from error
        return format_vector(model.embed([text])[0])

    def check(self) -> int:
        """Return the length of the vectors. Raise UsageError if the model did not make those of the store."""
        return int(self._examined[1])

    @cached_property
    def _examined(self) -> tuple[Any, int]:
        """The model, and the length of its vectors."""
        options = parse_options(self._project.config)
        if not shares_model(self._config, self._project):
            raise UsageError(
                f"the store's are of {name_model(self._config)}, the project's of {options.embedding_model}: make both "
                "the same, with `projects configure`, or by disconnecting the store and connecting it anew"
            )
        rows = self._store.sample_rows(SAMPLE_ROWS)
        if not rows:
            raise UsageError("no row of the store has a vector")
        model = open_embedder(self._engine, self._project, options, uuid4())
        ours = model.embed([row.text for row in rows])
        lengths = sorted({count_dimensions(row.vector or "") for row in rows})
        if lengths != [ours.shape[1]]:
            listed = " and ".join(map(str, lengths))
            raise UsageError(
                f"{model.name} makes vectors of {ours.shape[1]} dimensions, those of the store have {listed}"
            )
        theirs = normalize(parse_vectors([row.vector or "" for row in rows]))
        cosines = (theirs * ours).sum(axis=1)
        if cosines.min() < MIN_COSINE:
            other = int((cosines < MIN_COSINE).sum())
            raise UsageError(
                f"{model.name} did not make the vectors of the store: of {len(rows)} rows that were embedded again "
                f"{other} have another vector; the farthest has a cosine of {cosines.min():.3f}, and {MIN_COSINE} is "
                "needed"
            )
        return model, ours.shape[1]
