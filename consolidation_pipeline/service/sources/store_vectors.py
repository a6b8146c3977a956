"""Vectors for new rows of a store, by the model that made the vectors which are there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from threading import Thread
from uuid import uuid4

import numpy as np

from consolidation_pipeline.connect.store import MemoryStore, SourceRow, StoreConfig
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline.embed import is_local, load_embedder
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.llm.litellm_import import load_litellm
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
    """The embedding model of a store, examined before its vectors are used or new ones are made."""

    def __init__(self, engine: Engine, project: Project, config: StoreConfig, store: MemoryStore) -> None:
        self._engine, self._project, self._config, self._store = engine, project, config, store

    def prepare(self) -> None:
        """Load in the background what the model is called with, which takes seconds."""
        if not is_local(parse_options(self._project.config).embedding_model):
            Thread(target=load_litellm, name="load-litellm", daemon=True).start()

    def embed(self, text: str) -> str:
        """Return the vector of a text as Postgres writes it.

        Raises:
            UsageError: The model is not named, is not the project's, or did not make the vectors of the store.
        """
        try:
            model = self._proven
        except UsageError as error:
            raise UsageError(f"a new row needs a vector, and {error}") from error
        return format_vector(model.embed([text])[0])

    def check(self, rows: Sequence[SourceRow]) -> int:
        """Return the length of the vectors of rows, of which ``SAMPLE_ROWS`` are embedded again.

        Raises:
            UsageError: The model did not make them.
        """
        rows = [row for row in rows if row.vector is not None]
        if not rows:
            raise UsageError("no row of the store has a vector")
        rows = [rows[at] for at in np.linspace(0, len(rows) - 1, min(len(rows), SAMPLE_ROWS)).astype(int).tolist()]
        ours = self._model.embed([row.text for row in rows])
        lengths = sorted({count_dimensions(row.vector or "") for row in rows})
        if lengths != [ours.shape[1]]:
            listed = " and ".join(map(str, lengths))
            raise UsageError(
                f"{self._model.name} makes vectors of {ours.shape[1]} dimensions, those of the store have {listed}"
            )
        theirs = normalize(parse_vectors([row.vector or "" for row in rows]))
        cosines = (theirs * ours).sum(axis=1)
        if cosines.min() < MIN_COSINE:
            other = int((cosines < MIN_COSINE).sum())
            raise UsageError(
                f"{self._model.name} did not make the vectors of the store: of {len(rows)} rows that were embedded "
                f"again {other} have another vector; the farthest has a cosine of {cosines.min():.3f}, and "
                f"{MIN_COSINE} is needed"
            )
        return int(ours.shape[1])

    @cached_property
    def _model(self) -> Embedder:
        return open_embedder(self._engine, self._project, parse_options(self._project.config), uuid4())

    @cached_property
    def _proven(self) -> Embedder:
        """The model, which made the vectors of the store."""
        if not shares_model(self._config, self._project):
            own = parse_options(self._project.config).embedding_model
            raise UsageError(
                f"the store's are of {name_model(self._config)}, the project's of {own}: make both "
                "the same, with `projects configure`, or by disconnecting the store and connecting it anew"
            )
        self.check(self._store.sample_rows(SAMPLE_ROWS))
        return self._model
