"""Vectors of new memories whose model is free: they are stored with the memories, which are then written once."""

from __future__ import annotations

from collections.abc import Mapping

from consolidation_pipeline.core.memories.memories import NewMemory
from consolidation_pipeline.embed import is_local, load_embedder
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns
from consolidation_pipeline.store.projects import Project


def embed_if_free(
    project: Project, memories: Mapping[int, NewMemory], settings: Settings
) -> tuple[Mapping[int, Vectors], str]:
    """Return vectors of the memories that have none, and their model; none if the project's model is not free."""
    model = effective_options(project, settings).embedding_model
    if not is_local(model):
        return {}, model
    embedder = load_embedder(model)
    wanted = [at for at, memory in memories.items() if memory.embedding_model != embedder.name]
    texts = [join_text_columns([getattr(memories[at], name) for name in TEXT_COLUMNS]) for at in wanted]
    try:
        return dict(zip(wanted, embedder.embed(texts), strict=True)), embedder.name
    except EmbeddingError:
        return {}, embedder.name  # The memories are stored. The next run reports those that cannot be embedded.
