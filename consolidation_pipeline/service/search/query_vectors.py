"""Vectors of queries: cached for paid models, with a short timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from uuid import uuid4
from weakref import WeakKeyDictionary

from cachetools import LRUCache, TTLCache

from consolidation_pipeline.embed import is_local
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.errors import BudgetExhaustedError, EmbeddingError, LLMError
from consolidation_pipeline.llm.provider_errors import is_transient
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.search.retrievers import load_vector_length

# Short, because a user waits, and keyword matches are found without a vector too.
QUERY_TIMEOUT_SECONDS = 3.0
# After a failure the model is not called again for this long, so that only one search waits for it.
PAUSE_SECONDS = 30.0
# A vector has 12 KB at 3,072 dimensions.
MAX_CACHED_VECTORS = 1_000


class QueryVectorCache:
    """Cache of the vectors of recent queries, by model and text, and of models that failed. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._known: LRUCache[tuple[str, str], Vectors] = LRUCache(MAX_CACHED_VECTORS)
        self._failures: TTLCache[str, str] = TTLCache(MAX_CACHED_VECTORS, PAUSE_SECONDS, clock)
        self._lock = threading.Lock()

    def embed(self, embedder: Embedder, text: str) -> Vectors:
        """Return the vector (d,) of a text.

        Raises:
            EmbeddingError: The model failed, now or less than ``PAUSE_SECONDS`` ago.
            BudgetExhaustedError: The project's budget does not allow the call.
            LLMError: The model's reply cannot be used.
        """
        if is_local(embedder.name):
            return self._call_model(embedder, text)
        key = (embedder.name, text)
        with self._lock:
            if (vector := self._known.get(key)) is not None:
                return vector
            if failure := self._failures.get(embedder.name):
                raise EmbeddingError(
                    f"{embedder.name} failed and is not called again for {PAUSE_SECONDS:.0f} s: {failure}"
                )
        vector = self._call_model(embedder, text)
        with self._lock:
            self._failures.pop(embedder.name, None)
            self._known[key] = vector
        return vector

    def _call_model(self, embedder: Embedder, text: str) -> Vectors:
        try:
            vector: Vectors = embedder.embed([text])[0]
        except EmbeddingError as error:
            # Only transient errors count: a model that refuses one text may accept the next one.
            if isinstance(error.__cause__, Exception) and is_transient(error.__cause__):
                with self._lock:
                    self._failures[embedder.name] = str(error)
            raise
        return vector


_CACHES: WeakKeyDictionary[Engine, QueryVectorCache] = WeakKeyDictionary()


def embed_query(
    engine: Engine, project: Project, options: ConsolidationOptions, text: str, embedder: Embedder | None = None
) -> tuple[str, Vectors | None, str | None]:
    """Return the model's name, the query's vector (d,) and None; or the name, None, and why there is no vector.

    A paid model is not called if the project has no vector to compare with. ``embedder``: None = that of the options.
    """
    embedder = embedder or open_embedder(engine, project, options, uuid4(), timeout=QUERY_TIMEOUT_SECONDS)
    if not is_local(embedder.name):
        with engine.connect() as connection:
            missing = explain_missing_vectors(connection, project, embedder.name)
        if missing:
            return embedder.name, None, missing
    try:
        return embedder.name, _CACHES.setdefault(engine, QueryVectorCache()).embed(embedder, text), None
    except (BudgetExhaustedError, EmbeddingError, LLMError) as error:
        return embedder.name, None, str(error)


def explain_missing_vectors(connection: Connection, project: Project, model: str) -> str | None:
    """Return why vectors find nothing; None if a memory has a vector of the model."""
    has_vectors = load_vector_length(connection, project.id, model) > 0
    return None if has_vectors else f"no memory has a vector of {model} yet; the next run computes them"
