"""The vector of a query: a paid model is asked once for the same text, and is not waited for long."""

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
from consolidation_pipeline.llm.retries import is_transient
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.search.retrievers import load_vector_length

# Seconds: somebody waits for the answer of a search, and words alone give one meanwhile.
QUERY_TIMEOUT_SECONDS = 3.0
# Seconds for which a model that gave no vector is not asked again: one search pays for it, the next ones do not.
PAUSE_SECONDS = 30.0
# Vectors of 12 KB at 3,072 dimensions.
MAX_CACHED_VECTORS = 1_000


class QueryVectorCache:
    """Vectors of the last queries by model and text, and the models that are out of order; threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._known: LRUCache[tuple[str, str], Vectors] = LRUCache(MAX_CACHED_VECTORS)
        self._failures: TTLCache[str, str] = TTLCache(MAX_CACHED_VECTORS, PAUSE_SECONDS, clock)
        self._lock = threading.Lock()

    def embed(self, embedder: Embedder, text: str) -> Vectors:
        """The vector (d,) of a text.

        Raises:
            EmbeddingError: the model gave none, now or a moment ago. BudgetExhaustedError, LLMError: as it raises.
        """
        if is_local(embedder.name):
            return _first(embedder.embed([text]))
        key = (embedder.name, text)
        with self._lock:
            if (vector := self._known.get(key)) is not None:
                return vector
            if failure := self._failures.get(embedder.name):
                raise EmbeddingError(f"{embedder.name} is left alone for {PAUSE:.0f} s after it failed: {failure}")
        vector = self._ask(embedder, text)
        with self._lock:
            self._failures.pop(embedder.name, None)
            self._known[key] = vector
        return vector

    def _ask(self, embedder: Embedder, text: str) -> Vectors:
        try:
            return _first(embedder.embed([text]))
        except EmbeddingError as error:
            # A text that is refused says nothing of the next one.
            if isinstance(error.__cause__, Exception) and is_transient(error.__cause__):
                with self._lock:
                    self._failures[embedder.name] = str(error)
            raise


def _first(vectors: Vectors) -> Vectors:
    vector: Vectors = vectors[0]
    return vector


_OF_ENGINE: WeakKeyDictionary[Engine, QueryVectorCache] = WeakKeyDictionary()


def embed_query(
    engine: Engine, project: Project, options: ConsolidationOptions, text: str
) -> tuple[str, Vectors | None, str | None]:
    """The model's name and the query's vector (d,); or no vector, and why words decide alone.

    A paid model is not asked where there is nothing to compare with.
    """
    embedder = open_embedder(engine, project, options, uuid4(), timeout=QUERY_TIMEOUT_SECONDS)
    if not is_local(embedder.name):
        with engine.connect() as connection:
            missing = explain_missing_vectors(connection, project, embedder.name)
        if missing:
            return embedder.name, None, missing
    try:
        return embedder.name, _OF_ENGINE.setdefault(engine, QueryVectorCache()).embed(embedder, text), None
    except (BudgetExhaustedError, EmbeddingError, LLMError) as error:
        return embedder.name, None, str(error)


def explain_missing_vectors(connection: Connection, project: Project, model: str) -> str | None:
    """That no memory of the project has a vector of the model; None where one has."""
    has_vectors = load_vector_length(connection, project.id, model) > 0
    return None if has_vectors else f"no memory has a vector of {model} yet, a run gives it one"
